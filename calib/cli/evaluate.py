"""``calib evaluate``: what INT8 cost, which class, where, and whether the difference is real."""

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
    from calib.jobs.evaluate import Evaluation

EXIT_GATE_FAILED = 1
NAME_WIDTH = 34


def command(
    models: Annotated[
        list[str],
        typer.Argument(metavar="MODEL…", help="ONNX files, build folders (all their variants), or module:factory."),
    ],
    data: Annotated[str, typer.Option("--data", help="Manifest, image list, or name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    split: Annotated[str | None, typer.Option("--split", help="Split to evaluate on; its images need labels.")] = None,
    reference: Annotated[
        str | None,
        typer.Option("--reference", help="Network to compare with; default the first MODEL, if it is a float one."),
    ] = None,
    max_drop: Annotated[
        str,
        typer.Option("--max-drop", help="Gate, in IoU points: miou=0.3,class:NAME=1.0,slice:NAME=0.5; exit 1 beyond."),
    ] = "",
    gate_by: Annotated[
        str,
        typer.Option("--gate-by", help="Judge the measured loss (value) or the far end of its interval (interval)."),
    ] = "value",
    numerics: Annotated[
        str, typer.Option("--numerics", help="fake-quant: Q/DQ in float; int8: ONNX Runtime's integer kernels.")
    ] = "fake-quant",
    slices: Annotated[
        list[str] | None,
        typer.Option("--slice", help='NAME=EXPRESSION over the scan index, such as night="luma_mean<60".'),
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output-name", help="Output to score, where the networks have several.")
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
    pictures: Annotated[int, typer.Option("--pictures", min=0, help="Worst images shown for each network.")] = 8,
    mlflow: Annotated[str | None, typer.Option("--mlflow", help="Tracking URI to log to.")] = None,
    provider: Annotated[str, typer.Option("--provider", help="Where the networks run: cpu or cuda.")] = "cpu",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Measure every network: IoU of each class on each slice, differences with intervals, in a report.

    Exits with 1 when a limit of --max-drop is broken. Killed at any point, the same command goes on where it stopped.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import parse_choice
    from calib.jobs.evaluate import EvaluateRequest, run_evaluation

    request = EvaluateRequest(
        models=tuple(models),
        data=data,
        output=output,
        split=split,
        reference=reference,
        max_drop=max_drop,
        gate_by=parse_choice("--gate-by", gate_by, ("value", "interval")),
        slices=tuple(slices or ()),
        numerics=parse_choice("--numerics", numerics, ("fake-quant", "int8")),
        output_name=output_name,
        threshold=threshold,
        bootstrap_by=bootstrap_by,
        resamples=resamples,
        foreign=parse_choice("--foreign", foreign, ("stop", "void")),
        pictures=pictures,
        mlflow=mlflow,
        seed=seed,
        root=root,
        preprocess=preprocess,
        workers=workers,
        provider=parse_choice("--provider", provider, ("cpu", "cuda")),
    )
    progress = choose_progress(quiet=quiet)
    result = run_evaluation(request, progress)
    for note in result.document["notes"]:
        progress.warn(note)
    emit(result.document, as_json=as_json, text=render(result))
    if not result.passed:
        raise typer.Exit(EXIT_GATE_FAILED)


def render(result: Evaluation) -> str:
    """The result for people: the gate, failing lines first; the networks; the slices that lost most; the files."""
    document = result.document
    parts = ["\n".join(map(_gate_line, document["gate"]))] if document["gate"] else []
    parts.append("\n".join(_model_lines(document)))
    worst = list(_worst_lines(document))
    if worst:
        parts.append("\n".join(["largest losses, in points (* significant)", *worst]))
    if document["best_variant"]:
        parts.append(f"best variant  {document['best_variant']['words']}")
    parts.append(f"report  {result.folder / 'evaluation.html'}")
    return "\n\n".join(parts)


def _gate_line(verdict: dict[str, Any]) -> str:
    drop = "unknown" if verdict["drop"] is None else f"{verdict['drop']:.2f}{_interval(verdict['ci95'])}"
    reason = f": {verdict['reason']}" if verdict["reason"] else ""
    return f"{'pass' if verdict['passed'] else 'FAIL'}  {verdict['model']}  {verdict['limit']}  lost {drop}{reason}"


def _model_lines(document: dict[str, Any]) -> list[str]:
    data = document["data"]
    lines = [f"{data['name']} {data['split']}: {data['images']} images, {document['numerics']['words']}"]
    for model in document["models"]:
        against = model["vs_reference"]
        miou = "no class" if model["miou"] is None else f"{100 * model['miou']:.2f}"
        lines.append(
            f"{model['name']:<{NAME_WIDTH}} mIoU {miou}  {_against(against, model, document['reference'])}".rstrip()
        )
    return lines


def _against(against: dict[str, Any] | None, model: dict[str, Any], reference: str | None) -> str:
    if model["name"] == reference:
        return "reference"
    if against is None or against["miou"]["delta"] is None:
        return ""
    entry = against["miou"]
    flips = against["flips"]["share"]
    return f"{entry['delta']:+.2f}{_interval(entry['ci95'])}{'*' if entry['significant'] else ''}  {flips:.2%} flipped"


def _worst_lines(document: dict[str, Any]) -> list[str]:
    entries = [
        (entry["delta"], model["name"], kind, name, entry)
        for model in document["models"]
        if model["vs_reference"] is not None and model["name"] != document["reference"]
        for kind, found in (("class", model["vs_reference"]["per_class"]), ("slice", model["vs_reference"]["slices"]))
        for name, entry in found.items()
        if entry is not None and entry["delta"] is not None and entry["delta"] < 0
    ]
    entries.sort(key=lambda item: item[:4])
    return [
        f"{model:<{NAME_WIDTH}} {kind} {name}  {delta:+.2f}{_interval(entry['ci95'])}{'*' * entry['significant']}"
        for delta, model, kind, name, entry in entries[:8]
    ]


def _interval(ci95: list[float] | None) -> str:
    return "" if ci95 is None else f" [{ci95[0]:.2f}, {ci95[1]:.2f}]"
