"""``calib cache``: read, compare, check, convert and change calibration caches and the other files of ranges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from calib.cli.common import JsonFlag, PreprocessOption, emit

SUMMARY = "Read, compare, check and convert calibration caches and other files of ranges."
app = typer.Typer(no_args_is_help=True, help=SUMMARY)

FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A calibration cache, or a file of ranges in another format.")
]
OutputOption = Annotated[Path, typer.Option("-o", "--output", help="File to write.")]
ToOption = Annotated[
    str | None, typer.Option("--to", metavar="FORMAT", help="Format to write; without it the file's suffix tells.")
]
VersionOption = Annotated[
    str | None,
    typer.Option(
        "--trt-version", help="TensorRT version of a cache's header; default: the source cache's, or 10.14.1."
    ),
]
AlgorithmOption = Annotated[str | None, typer.Option("--algorithm", help="Calibrator class named in a cache's header.")]
PartialFlag = Annotated[bool, typer.Option("--partial", help="Leave out what cannot be carried over.")]
ModelOption = Annotated[Path | None, typer.Option("--model", help="ONNX file of the float network.")]


@app.callback()
def _group() -> None:
    """Read, compare, check and convert calibration caches and other files of ranges."""


@app.command()
def show(file: FileArgument, as_json: JsonFlag = False) -> None:
    """Print ranges: header, amax, what the input's range says of the preprocessing, suspect entries."""
    from calib.jobs.cache.show import as_text, describe_file

    document = describe_file(file)
    emit(document, as_json=as_json, text=as_text(document))


@app.command()
def diff(
    first: Annotated[str, typer.Argument(metavar="A", help="A file of ranges.")],
    second: Annotated[str, typer.Argument(metavar="B", help="Another.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="Picture of the differences: .html or .svg.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare two files tensor by tensor: ratio in bits, renamed tensors, headers."""
    from calib.jobs.cache.diff import as_text, document_of
    from calib.jobs.cache.diff import diff as compare

    found = compare(first, second, output)
    emit(document_of(first, second, found), as_json=as_json, text=as_text(first, second, found))


@app.command()
def lint(
    file: FileArgument,
    model: ModelOption = None,
    preprocess: PreprocessOption = None,
    data: Annotated[str | None, typer.Option("--data", help="Manifest that states the preprocessing.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Say what is wrong with a file of ranges; ends with 1 if it must not be used."""
    from calib.jobs.cache.lint import as_text, document_of
    from calib.jobs.cache.lint import lint as check

    report = check(file, model, preprocess, data)
    emit(document_of(file, report), as_json=as_json, text=as_text(file, report))
    if report.failed:
        raise typer.Exit(1)


@app.command()
def convert(
    file: FileArgument,
    output: OutputOption,
    to: ToOption = None,
    model: ModelOption = None,
    target: Annotated[str, typer.Option("--target", help="Q/DQ placement rules: trt10, trt11 or ort.")] = "trt11",
    trt_version: VersionOption = None,
    algorithm: AlgorithmOption = None,
    partial: PartialFlag = False,
    as_trained: Annotated[
        bool, typer.Option("--as-trained", help="Quantize exactly the layers that the state dict or Q/DQ file does.")
    ] = False,
    keep_float: Annotated[
        list[str] | None,
        typer.Option("--keep-float", help="Layers that stay in float in Q/DQ: PATTERN with * and ?, or @FILE of them."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Convert ranges to another format; with --model and an .onnx output, to Q/DQ for TensorRT 11."""
    from calib.jobs.cache.convert import ConvertRequest, parse_target
    from calib.jobs.cache.convert import convert as run
    from calib.jobs.cache.convert_report import as_text, document_of

    kept = tuple(keep_float or ())
    request = ConvertRequest(
        file, output, to, model, parse_target(target), trt_version, algorithm, partial, as_trained, kept
    )
    result = run(request)
    emit(document_of(result), as_json=as_json, text=as_text(result))


@app.command()
def retarget(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TensorRT calibration cache.")],
    output: OutputOption,
    trt_version: Annotated[
        str | None,
        typer.Option("--trt-version", help="TensorRT version that shall read it; with --algorithm the cache's own."),
    ] = None,
    algorithm: AlgorithmOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Give a cache the header of another TensorRT version, and say what that does not prove."""
    from calib.jobs.cache.retarget import retarget as run

    result = run(file, output, trt_version, algorithm)
    emit(result.document(), as_json=as_json, text=result.text())


@app.command()
def merge(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Two files of ranges or more.")],
    output: OutputOption,
    to: ToOption = None,
    model: ModelOption = None,
    trt_version: VersionOption = None,
    algorithm: AlgorithmOption = None,
    as_json: JsonFlag = False,
) -> None:
    """Write the larger range of every tensor, in the network's order or the first file's."""
    from calib.jobs.cache.merge import MergeRequest
    from calib.jobs.cache.merge import merge as run

    result = run(MergeRequest(files, output, to, model, trt_version, algorithm))
    emit(result.document(), as_json=as_json, text=result.text())


@app.command()
def rename(
    file: FileArgument,
    output: OutputOption,
    mapping: Annotated[
        str | None, typer.Option("--map", help="File of names: JSON {old: new}, or a line 'old<TAB>new' each.")
    ] = None,
    from_model: Annotated[
        Path | None, typer.Option("--from-model", help="ONNX export whose names the file has.")
    ] = None,
    to_model: Annotated[Path | None, typer.Option("--to-model", help="ONNX export whose names it shall get.")] = None,
    partial: PartialFlag = False,
    as_json: JsonFlag = False,
) -> None:
    """Carry ranges over to other names, from a list or from one export of a network to another."""
    from calib.jobs.cache.rename import RenameRequest
    from calib.jobs.cache.rename import rename as run

    result = run(RenameRequest(file, output, mapping, from_model, to_model, partial))
    emit(result.document(), as_json=as_json, text=result.text())
