"""``calib diagnose``: the stage, the first tensor and the cause of an accuracy loss."""

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
from calib.cli.sensitivity import render

if TYPE_CHECKING:
    from calib.jobs.diagnose import Diagnosis

EXIT_FAULT = 1
TITLE_WIDTH = 52


def command(
    reference: Annotated[
        str, typer.Argument(metavar="REFERENCE", help="The network as it should be: module:factory or an ONNX file.")
    ],
    candidate: Annotated[
        str,
        typer.Argument(
            metavar="CANDIDATE",
            help="The network that lost accuracy: the same, or Q/DQ ONNX, a build folder, DIR:calibrator, an engine.",
        ),
    ],
    data: Annotated[str, typer.Option("--data", help="Manifest, image list, or name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="Folder of the results.")],
    split: Annotated[
        str | None, typer.Option("--split", help="Split to take images from; labels are optional.")
    ] = None,
    num_images: Annotated[
        int, typer.Option("--num-images", min=1, help="Images looked at, spread over the split.")
    ] = 16,
    reference_weights: Annotated[
        Path | None, typer.Option("--reference-weights", help="Checkpoint of a PyTorch REFERENCE.")
    ] = None,
    candidate_weights: Annotated[
        Path | None, typer.Option("--candidate-weights", help="Checkpoint of a PyTorch CANDIDATE.")
    ] = None,
    candidate_preprocess: Annotated[
        str | None,
        typer.Option(
            "--candidate-preprocess", help="The candidate's preprocessing, where it is another; as --preprocess."
        ),
    ] = None,
    cache: Annotated[
        str | None, typer.Option("--cache", help="Calibration cache to check; a build folder brings its own.")
    ] = None,
    output_name: Annotated[
        str | None, typer.Option("--output-name", help="Output that counts, where the networks have several.")
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity", help="Also rank the candidate's quantizers, each alone on, into DIR/sensitivity."
        ),
    ] = False,
    fail_on_fault: Annotated[bool, typer.Option("--fail-on-fault", help="Exit with 1 when a fault is found.")] = False,
    provider: Annotated[str, typer.Option("--provider", help="Where the candidate's rungs run: cpu or cuda.")] = "cpu",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    seed: SeedOption = 0,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Find where two networks part: which stage, which tensor first, and why.

    Runs the ladder from the reference to the candidate, aligns both networks tensor by tensor, and names the step where
    error is born. Exits with 0 whatever it finds, unless --fail-on-fault is given.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import parse_choice
    from calib.jobs.diagnose import DiagnoseRequest, run_diagnosis
    from calib.jobs.diagnose.ranking import rank_quantizers

    request = DiagnoseRequest(
        reference=reference,
        candidate=candidate,
        data=data,
        output=output,
        split=split,
        root=root,
        preprocess=preprocess,
        candidate_preprocess=candidate_preprocess,
        reference_weights=reference_weights,
        candidate_weights=candidate_weights,
        cache=cache,
        num_images=num_images,
        output_name=output_name,
        workers=workers,
        provider=parse_choice("--provider", provider, ("cpu", "cuda")),
        seed=seed,
    )
    progress = choose_progress(quiet=quiet)
    done = run_diagnosis(request, progress)
    text = "\n".join(_lines(done))
    if sensitivity:
        ranking = rank_quantizers(request, done, progress)
        done.document["sensitivity"] = ranking.document
        text = f"{text}\n\n{render(ranking)}"
    emit(done.document, as_json=as_json, text=text)
    if fail_on_fault and done.verdict.fault:
        raise typer.Exit(EXIT_FAULT)


def _lines(done: Diagnosis) -> list[str]:
    document = done.document
    lines = [*_verdict_lines(document), "", "ladder (against the reference):"]
    lines += [_rung_line(item) for item in document["ladder"]]
    others = document["causes"][1:]
    if others:
        lines += ["", f"{len(others)} more:"]
        lines += [f"  {item['stage']}: {item['title']}" for item in others[:8]]
    if document["remarks"]:
        lines += ["", "remarks:"]
        lines += [f"  {item['title']}" for item in document["remarks"][:6]]
    lines += [f"note: {note}" for note in document["notes"]]
    return [*lines, "", f"report: {done.folder / 'diagnosis.html'}"]


def _verdict_lines(document: dict[str, Any]) -> list[str]:
    verdict = document["verdict"]
    cause = verdict["cause"]
    lines = [f"{'FAULT' if verdict['fault'] else 'OK'}  {verdict['words']}"]
    if cause is not None:
        lines += [f"  node    {cause['node']}", f"  tensor  {cause['tensor']}", f"  cause   {cause['kind']}"]
        lines += [f"  seen    {line}" for line in cause["evidence"]]
        lines += [f"  remedy  {cause['remedy']}"]
    return lines


def _rung_line(item: dict[str, Any]) -> str:
    if item["skipped"]:
        return f"  {item['title']:<{TITLE_WIDTH}} not run: {item['skipped']}"
    if item["below"] is None:
        accuracy = item["accuracy"]
        known = accuracy is not None and accuracy["miou"] is not None
        miou = f"mIoU {100 * accuracy['miou']:.2f}" if known else ""
        return f"  {item['title']:<{TITLE_WIDTH}} {miou}".rstrip()
    flips = "" if item["flips"] is None else f"  {item['flips']:.2%} flipped"
    accuracy = item["accuracy"]
    delta = "" if accuracy is None or accuracy["delta"] is None else f"  mIoU {accuracy['delta']:+.2f}"
    mark = "  <- falls" if item["falls"] else ""
    return f"  {item['title']:<{TITLE_WIDTH}} SQNR {_decibels(item['output']['sqnr_db'])}{flips}{delta}{mark}"


def _decibels(value: Any) -> str:
    return {"inf": "equal", "-inf": "none", None: "none"}.get(
        value, f"{value:.1f} dB" if isinstance(value, float) else ""
    )
