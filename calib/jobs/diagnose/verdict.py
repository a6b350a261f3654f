"""The verdict: the stage, the place and the cause, or that there is no fault; from the causes and the ladder."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calib.stages.diagnose.costliest import words_of
from calib.stages.diagnose.ladder import FLIPS, POINTS, SAME_DB, Standing, falls, points_lost
from calib.types.diagnosis import Cause, Stage

WORDS: Mapping[Stage, str] = {
    "preprocessing": "the candidate is fed other numbers",
    "export": "the candidate computes something else than the reference, before any quantization",
    "runtime": "one graph, two answers: the runtime",
    "fp16": "the cast to float16",
    "quantization": "the Q/DQ pairs",
    "kernels": "the integer kernels",
    "tensorrt": "TensorRT",
}
PREDICTED = "fp16"
"""A rung that is a forecast: the candidate itself is not in float16."""


@dataclass(frozen=True)
class Verdict:
    """What a diagnosis comes to.

    Attributes:
        fault: whether the candidate has one.
        stage: where accuracy falls; None where it does not.
        cause: the first cause, or None.
        words: one sentence.
    """

    fault: bool
    stage: Stage | None
    cause: Cause | None
    words: str


def decide(causes: Sequence[Cause], standings: Sequence[Standing], remarks: Sequence[Cause] = ()) -> Verdict:
    """Name the first stage that has a cause; without causes, the first where accuracy falls."""
    if causes:
        first = causes[0]
        return Verdict(True, first.stage, first, f"{first.stage}: {WORDS[first.stage]}. {first.title}")
    by_name = {item.rung.name: item for item in standings}
    for item in standings:
        stage = item.rung.stage
        below = by_name.get(item.rung.below or "")
        if stage is None or item.step is None:
            continue
        if _unlocated(item, below):
            words = f"{stage}: {WORDS[stage]}, at a place that could not be found ({_measure(item, below)})"
            return Verdict(stage != "quantization", stage, None, words)
        if stage == "quantization" and falls(item, below):
            origin = words_of(remarks) or "no single pair is to blame; the error is spread over the network"
            words = f"no fault: INT8 costs {_measure(item, below)}, every range fits its tensor; {origin}"
            return Verdict(False, stage, None, words)
    quantized = by_name.get("fake-quant")
    if quantized is not None and quantized.step is not None:
        cost = _measure(quantized, by_name.get(quantized.rung.below or ""))
        return Verdict(False, None, None, f"no fault: the float parts agree, and INT8 costs {cost}")
    latent = next((remark for remark in remarks if remark.stage in {"preprocessing", "export"}), None)
    if latent is not None:
        words = f"no fault on these images, but the graphs differ: {latent.title}"
        return Verdict(False, None, None, words)
    return Verdict(False, None, None, "no fault: the candidate answers as the reference does")


def _unlocated(item: Standing, below: Standing | None) -> bool:
    """Whether a float stage, or the kernels, changed the answer and no departure says why."""
    stage = item.rung.stage
    if item.step is None or (item.rung.name == PREDICTED and stage == "fp16"):
        return False
    if stage == "export":
        return item.step.sqnr_db < SAME_DB
    return stage in {"runtime", "kernels", "tensorrt"} and falls(item, below)


def _measure(item: Standing, below: Standing | None) -> str:
    lost = points_lost(item, below)
    if lost is not None:
        flips = item.step_flips or 0.0
        moved = f", though {flips:.2%} of the pixels change class" if lost <= POINTS and flips > FLIPS else ""
        return (f"{lost:.2f} points of mIoU" if lost > 0 else f"no mIoU ({abs(lost):+.2f} points)") + moved
    if item.step_flips is not None:
        return f"{item.step_flips:.2%} of the pixels change class"
    decibels = item.step.sqnr_db if item.step else math.nan
    return f"the output's SQNR is {decibels:.1f} dB"
