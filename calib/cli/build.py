"""``calib build``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.common import (
    JsonFlag,
    PreprocessOption,
    QuietFlag,
    RootOption,
    SeedOption,
    VerboseFlag,
    WorkersOption,
    emit,
)

if TYPE_CHECKING:
    from calib.jobs.build import BuildResult


def command(
    model: Annotated[Path, typer.Argument(help="ONNX file of the float network.")],
    data: Annotated[str, typer.Option("--data", help="Manifest, image list, or name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Build folder.")],
    split: Annotated[str | None, typer.Option("--split", help="Split to choose calibration images from.")] = None,
    sampler: Annotated[
        list[str] | None,
        typer.Option("--sampler", help="NAME:key=value,… (`calib samplers`); several share the number evenly."),
    ] = None,
    num_images: Annotated[
        str, typer.Option("--num-images", help="How many images, or auto: until the ranges settle.")
    ] = "128",
    calibrator: Annotated[
        list[str] | None,
        typer.Option("--calibrator", help="NAME:key=value,… (`calib calibrators`); without it all of them."),
    ] = None,
    evaluation_split: Annotated[
        str | None, typer.Option("--evaluation-split", help="Split whose images must not be calibrated on.")
    ] = None,
    evaluate: Annotated[
        str | None,
        typer.Option("--evaluate", help="Measure every variant on this split; the best becomes the release."),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output-name", help="Output that --evaluate scores, where the network has several.")
    ] = None,
    trt_version: Annotated[
        str, typer.Option("--trt-version", help="TensorRT version the caches are headed for.")
    ] = "10.14.1",
    cache_algorithm: Annotated[
        str, typer.Option("--cache-algorithm", help="Calibrator class named in the cache header.")
    ] = "EntropyCalibration2",
    target: Annotated[str, typer.Option("--target", help="Q/DQ placement rules: trt10, trt11 or ort.")] = "trt10",
    keep_float: Annotated[
        list[str] | None,
        typer.Option(
            "--keep-float", help="Layers that stay in float: PATTERN with * and ?, or @FILE of them; may be repeated."
        ),
    ] = None,
    provider: Annotated[str, typer.Option("--provider", help="Where the network runs: cpu or cuda.")] = "cpu",
    batch_size: Annotated[int, typer.Option("--batch-size", min=1, help="Images a run of the network.")] = 1,
    non_finite: Annotated[
        str, typer.Option("--non-finite", help="At NaN or infinity: stop, or skip and count them.")
    ] = "stop",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Choose images, calibrate on them, write caches, Q/DQ networks, provenance and a report.

    Killed at any point, the same command goes on where it stopped.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import BuildRequest, build, parse_choice, parse_count

    request = BuildRequest(
        model=model,
        data=data,
        output=output,
        split=split,
        samplers=tuple(sampler or BuildRequest.samplers),
        num_images=parse_count(num_images),
        calibrators=tuple(calibrator or ()),
        evaluation_split=evaluation_split,
        evaluate=evaluate,
        output_name=output_name,
        seed=seed,
        root=root,
        preprocess=preprocess,
        workers=workers,
        provider=parse_choice("--provider", provider, ("cpu", "cuda")),
        batch_size=batch_size,
        non_finite=parse_choice("--non-finite", non_finite, ("stop", "skip")),
        trt_version=trt_version,
        cache_algorithm=cache_algorithm,
        target=parse_choice("--target", target, ("trt10", "trt11", "ort")),
        keep_float=tuple(keep_float or ()),
    )
    result = build(request, choose_progress(quiet=quiet))
    emit(_document(result), as_json=as_json, text=_text(result))


def _document(result: BuildResult) -> dict[str, Any]:
    return {"folder": str(result.folder), "reused": result.reused, **result.provenance}


def _text(result: BuildResult) -> str:
    lines = list(result.summary())
    width = max(len(name) for name, _ in lines)
    return "\n".join(f"{name:<{width}}  {text}".rstrip() for name, text in lines)
