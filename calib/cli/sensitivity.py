"""``calib sensitivity``: what each quantizer costs alone, ranked."""

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
    from calib.jobs.sensitivity import Sensitivity

SHOWN = 15
NAME_WIDTH = 48


def command(
    network: Annotated[
        str, typer.Argument(metavar="NETWORK", help="Build folder, Q/DQ ONNX file, or float ONNX file with --ranges.")
    ],
    data: Annotated[str, typer.Option("--data", help="Manifest, image list, or name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    split: Annotated[str | None, typer.Option("--split", help="Split to measure on.")] = None,
    calibrator: Annotated[
        str | None, typer.Option("--calibrator", help="Which variant of a build folder; default the one released.")
    ] = None,
    ranges: Annotated[
        str | None, typer.Option("--ranges", help="Ranges for a float network: a cache, a table, a Q/DQ network.")
    ] = None,
    target: Annotated[
        str, typer.Option("--target", help="Whose placement rules turn ranges into pairs: trt10, trt11 or ort.")
    ] = "trt10",
    mode: Annotated[
        str,
        typer.Option("--mode", help="alone: one on in the float network; without: one off in the quantized network."),
    ] = "alone",
    unit: Annotated[
        str, typer.Option("--unit", help="Switch a layer with all its pairs, or a single tensor: layer or tensor.")
    ] = "layer",
    num_images: Annotated[str, typer.Option("-n", "--num-images", help="Images at most, or all.")] = "64",
    exhaustive: Annotated[
        bool, typer.Option("--exhaustive", help="Show every image to every quantizer; no racing.")
    ] = False,
    top: Annotated[int, typer.Option("--top", help="Places of the ranking that racing keeps right.")] = 10,
    resolution: Annotated[
        float, typer.Option("--resolution", help="Smallest loss that matters, in points of IoU.")
    ] = 0.1,
    rank_by: Annotated[str, typer.Option("--rank-by", help="miou, class:NAME or slice:NAME.")] = "miou",
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", help='NAME=EXPRESSION over the scan index, such as night="luma_mean<60".'),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output-name", help="Output to score, where the network has several.")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option("--threshold", help="Of a one-channel output; default 0.5 after Sigmoid, else 0.")
    ] = None,
    bootstrap_by: Annotated[
        str | None,
        typer.Option("--bootstrap-by", help="Manifest column (a sequence) whose images are drawn as a whole."),
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", min=100, help="Bootstrap resamples.")] = 2000,
    foreign: Annotated[
        str, typer.Option("--foreign", help="At label values outside the classes: stop, or count them as void.")
    ] = "stop",
    provider: Annotated[str, typer.Option("--provider", help="Where the network runs: cpu or cuda.")] = "cpu",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Measure what each quantizer costs alone: loss of IoU by class and slice, flips, noise, and the work it saves.

    Killed at any point, the same command goes on where it stopped.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import parse_choice
    from calib.jobs.sensitivity import SensitivityRequest, measure_sensitivity

    request = SensitivityRequest(
        network=network,
        data=data,
        output=output,
        split=split,
        calibrator=calibrator,
        ranges=ranges,
        target=parse_choice("--target", target, ("trt10", "trt11", "ort")),
        mode=parse_choice("--mode", mode, ("alone", "without")),
        unit=parse_choice("--unit", unit, ("layer", "tensor")),
        num_images=_images(num_images),
        exhaustive=exhaustive,
        top=top,
        resolution=resolution,
        rank_by=rank_by,
        slices=tuple(slices or ()),
        output_name=output_name,
        threshold=threshold,
        bootstrap_by=bootstrap_by,
        resamples=resamples,
        foreign=parse_choice("--foreign", foreign, ("stop", "void")),
        seed=seed,
        root=root,
        preprocess=preprocess,
        workers=workers,
        provider=parse_choice("--provider", provider, ("cpu", "cuda")),
    )
    progress = choose_progress(quiet=quiet)
    result = measure_sensitivity(request, progress)
    for note in result.document["notes"]:
        progress.warn(note)
    emit(result.document, as_json=as_json, text=render(result))


def _images(text: str) -> int | None:
    """Read ``--num-images``.

    Raises:
        UsageError: neither a whole number of at least 1 nor ``all``.
    """
    from calib.errors import UsageError

    if text == "all":
        return None
    if text.isdecimal() and int(text):
        return int(text)
    raise UsageError(
        "--num-images", expected="a whole number of at least 1, or all", got=repr(text), remedy="20 is a quick start"
    )


def render(result: Sensitivity) -> str:
    """The result for people: the first of the ranking, all together, the work done, the report."""
    document = result.document
    data, ranking, units = document["data"], document["ranking"], document["units"]
    head = f"{data['name']} {data['split']}: {len(units)} quantizers on at most {len(data['images'])} images"
    lines = [f"{head}, {ranking['runs']} runs of {ranking['runs_of_all']}", f"ranked {ranking['rule']}", ""]
    lines += [_line(unit) for unit in units[:SHOWN]]
    if len(units) > SHOWN:
        lines.append(f"… and {len(units) - SHOWN} more")
    lines += ["", f"{'all together':<{NAME_WIDTH + 5}} {_numbers(document['together'])}"]
    kept = document["costly"]
    if kept and document["network"]["unit"] == "layer":
        share = sum(unit["macs_share"] or 0.0 for unit in units if unit["name"] in kept)
        text = f"{len(kept)} layers lose {ranking['resolution']:g} points or more each, with {share:.1%} of the MACs"
        lines += ["", f"{text}: calib build … --keep-float @{result.folder / 'keep-float.txt'}"]
    return "\n".join([*lines, "", f"report  {result.folder / 'sensitivity.html'}"])


def _line(unit: dict[str, Any]) -> str:
    name = unit["name"] if len(unit["name"]) <= NAME_WIDTH else f"…{unit['name'][1 - NAME_WIDTH :]}"
    work = "" if unit["macs_share"] is None else f"  {unit['macs_share']:.1%} of MACs"
    return f"{unit['rank']:>3}. {name:<{NAME_WIDTH}} {_numbers(unit)}{work}, {unit['images']} images"


def _numbers(found: dict[str, Any]) -> str:
    flips = f"{found['flips']['share']:.3%} flipped"
    if found["loss"] is None or found["loss"]["miou"]["loss"] is None:
        return flips
    entry = found["loss"]["miou"]
    ci95 = "" if entry["ci95"] is None else f" [{entry['ci95'][0]:.2f}, {entry['ci95'][1]:.2f}]"
    return f"lost {entry['loss']:+.3f}{ci95}{'*' if entry['significant'] else ''}  {flips}"
