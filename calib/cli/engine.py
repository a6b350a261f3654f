"""``calib engine``: a TensorRT engine from a build folder, or the command that makes it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from calib.cli.common import JsonFlag, PreprocessOption, QuietFlag, RootOption, VerboseFlag, emit

if TYPE_CHECKING:
    from calib.jobs.engine import EngineResult

EXIT_NOT_BUILT = 2


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Build folder.")],
    target: Annotated[str, typer.Option("--target", help="trt10 (float network and cache) or trt11 (Q/DQ network).")],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="Engine file; default in DIR.")] = None,
    model: Annotated[
        Path | None, typer.Option("--model", help="Float network that was calibrated; needed for trt10.")
    ] = None,
    variant: Annotated[
        str | None, typer.Option("--variant", help="Calibrator; default the release artifact's.")
    ] = None,
    native: Annotated[
        bool,
        typer.Option(
            "--native-calibration", help="trt10: let TensorRT calibrate on the build's images (needs --data)."
        ),
    ] = False,
    data: Annotated[str | None, typer.Option("--data", help="The build's manifest.")] = None,
    shapes: Annotated[
        list[str] | None,
        typer.Option("--shapes", help="NAME:1x3x352x480, or NAME:MIN/OPT/MAX, for inputs that leave lengths open."),
    ] = None,
    fp16: Annotated[bool, typer.Option("--fp16/--no-fp16", help="Run in FP16 what does not run in INT8.")] = True,
    timing_cache: Annotated[
        Path | None, typer.Option("--timing-cache", help="Kernel timings, kept from build to build.")
    ] = None,
    print_only: Annotated[
        bool, typer.Option("--print-command", help="Print the trtexec command and build nothing.")
    ] = False,
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Build a TensorRT engine and say which layers really run in INT8.

    Where TensorRT is missing, prints the exact trtexec command and why, and exits with 2: there is no engine.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import parse_choice
    from calib.jobs.engine import EngineRequest, build_engine

    request = EngineRequest(
        folder=folder,
        target=parse_choice("--target", target, ("trt10", "trt11")),
        model=model,
        output=output,
        variant=variant,
        native=native,
        data=data,
        root=root,
        preprocess=preprocess,
        shapes=tuple(shapes or ()),
        fp16=fp16,
        timing_cache=timing_cache,
        print_only=print_only,
    )
    result = build_engine(request, choose_progress(quiet=quiet))
    emit(result.document(), as_json=as_json, text=render(result))
    if result.missing is not None:
        typer.echo(f"calib: nothing was built; {result.missing}", err=True)
        raise typer.Exit(EXIT_NOT_BUILT)


def render(result: EngineResult) -> str:
    """The result for people: the audit and the files, or the command alone, so that it can be piped to a shell."""
    notes = [f"# note: {text}" for text in (*result.notes, *(result.command.notes if result.audit is None else ()))]
    if result.audit is None:
        written = [f"# wrote {path}" for path in result.files.values()]
        return "\n".join([f"# TensorRT {result.command.major}", *notes, *written, result.command.text])
    files = [f"{role:<13}{path}" for role, path in result.files.items()]
    return "\n".join([*result.audit.lines(), "", *notes, *files])
