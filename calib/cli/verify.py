"""``calib verify``: the release gate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from calib.cli.common import (
    JsonFlag,
    PreprocessOption,
    QuietFlag,
    RootOption,
    VerboseFlag,
    WorkersOption,
    emit,
)
from calib.errors import UsageError

if TYPE_CHECKING:
    from calib.jobs.verify import Verification

EXIT_GATE_FAILED = 1


def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Build folder.")],
    model: Annotated[Path, typer.Option("--model", help="ONNX file of the float network to be released.")],
    data: Annotated[
        str | None, typer.Option("--data", help="Manifest: checks images, preprocessing and overlap as well.")
    ] = None,
    split: Annotated[
        str | None, typer.Option("--split", help="Split that was calibrated on; default as recorded.")
    ] = None,
    evaluation_split: Annotated[
        str | None, typer.Option("--evaluation-split", help="Split of the accuracy check; default as recorded.")
    ] = None,
    max_drop: Annotated[
        str, typer.Option("--max-drop", help="IoU points that may be lost: miou=0.3,class:Pedestrian=1.0.")
    ] = "",
    gate_by: Annotated[
        str, typer.Option("--gate-by", help="Judge the measured value, or the far end of its interval.")
    ] = "value",
    evaluation: Annotated[
        Path | None, typer.Option("--evaluation", help="Stored evaluation.json; default the one in DIR.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Evaluate now in place of a stored evaluation.")] = False,
    variant: Annotated[
        str | None, typer.Option("--variant", help="Calibrator whose accuracy is judged; default the release's.")
    ] = None,
    key: Annotated[
        Path | None, typer.Option("--key", help="Public key (PEM, Ed25519) that must have signed the build.")
    ] = None,
    trt_version: Annotated[
        str | None, typer.Option("--trt-version", help="TensorRT that will read the caches; default the installed one.")
    ] = None,
    max_age: Annotated[float | None, typer.Option("--max-age", min=0, help="Days that the build may be old.")] = None,
    replay: Annotated[
        str, typer.Option("--replay", help="Calibration images to run again and compare: a number, or all.")
    ] = "2",
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
    verbose: VerboseFlag = False,
) -> None:
    """Refuse a build that is stale, tampered with, of another network, or not accurate enough.

    Prints every reason, failing ones first, each with a remedy. Exits with 1 if a check fails.
    """
    del verbose
    from calib.edges.progress import choose_progress
    from calib.jobs.build import parse_choice
    from calib.jobs.verify import VerifyRequest, verify

    request = VerifyRequest(
        folder=folder,
        model=model,
        data=data,
        split=split,
        evaluation_split=evaluation_split,
        root=root,
        preprocess=preprocess,
        max_drop=max_drop,
        gate_by=parse_choice("--gate-by", gate_by, ("value", "interval")),
        evaluation=evaluation,
        fresh=fresh,
        variant=variant,
        key=key,
        trt_version=trt_version,
        max_age=max_age,
        replay=parse_replay(replay),
        workers=workers,
    )
    result = verify(request, choose_progress(quiet=quiet))
    emit(result.document(), as_json=as_json, text=render(result))
    if not result.passed:
        raise typer.Exit(EXIT_GATE_FAILED)


def parse_replay(text: str) -> int | Literal["all"]:
    """Read ``--replay``.

    Raises:
        UsageError: neither ``all`` nor a whole number.
    """
    if text == "all":
        return "all"
    if text.isdecimal():
        return int(text)
    raise UsageError(
        "--replay", expected="a whole number, or all", got=repr(text), remedy="2 is the default; 0 runs none"
    )


def render(result: Verification) -> str:
    """The verdict for people: failing checks first, each with its remedy, the verdict last."""
    width = max(len(check.name) for check in result.checks)
    lines = []
    for check in result.checks:
        status = check.status.upper() if check.status == "fail" else check.status
        lines.append(f"{status}  {check.name:<{width}}  {check.detail}".rstrip())
        if check.remedy:
            lines.append(f"{'':<{width + 8}}remedy: {check.remedy}")
    return "\n".join([*lines, "", _verdict(result)])


def _verdict(result: Verification) -> str:
    failed = sum(check.status == "fail" for check in result.checks)
    skipped = [check.name for check in result.checks if check.status == "skip"]
    unseen = f"; not checked: {', '.join(dict.fromkeys(skipped))}" if skipped else ""
    if failed:
        return f"refused: {failed} check{'s' * (failed != 1)} failed{unseen}"
    return f"passed{unseen}"
