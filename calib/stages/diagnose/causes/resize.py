"""Resize: another mode, coordinate transformation, nearest mode or size; and runtimes that round a tie differently."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.difference import difference, spatial_shift
from calib.core.resizespec import resize, same_sampling, spec_of
from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.causes.common import (
    CONFIRMED,
    LIKELY,
    make_cause,
    parameter_changes,
    restored,
    show,
)
from calib.stages.diagnose.steprun import Mend
from calib.stages.diagnose.trace import Step
from calib.types.diagnosis import Cause

MODES = frozenset(
    {"mode", "coordinate_transformation_mode", "nearest_mode", "cubic_coeff_a", "exclude_outside", "antialias"}
)
SIZES = frozenset({"size", "scales"})
ADVICE = (
    "export the Resize with the reference's mode: PyTorch's align_corners=False is half_pixel, align_corners=True is "
    "align_corners, nearest is asymmetric with floor"
)


def detect(case: Case) -> Iterator[Cause]:
    """Find Resize nodes that sample otherwise."""
    steps = {change.step.index: change for change in parameter_changes(case, frozenset({"Resize"})) if change.step}
    for change in steps.values():
        step, other = change.step, change.other
        if step is None or other is None:
            continue
        changed = [item for item in parameter_changes(case, frozenset({"Resize"})) if item.step is step]
        yield from _of_modes(case, step, other, [item for item in changed if item.name in MODES])
        yield from _of_size(case, step, other, [item for item in changed if item.name in SIZES])


def _of_modes(case: Case, step: Step, other: Step, changed: list[Change]) -> Iterator[Cause]:
    if not changed:
        return
    before, after = case.reference.values.get(other.data[0]), case.reference.values.get(other.outputs[0])
    if before is not None and after is not None:
        specs = [spec_of(item.parameters) for item in (step, other)]
        if before.ndim == after.ndim and same_sampling(specs[0], specs[1], before.shape, after.shape):
            yield from _backend(case, step, other, changed)
            return
    mend = Mend(parameters={item.name: item.before for item in changed})
    healed = case.heals_with(step, mend)
    words = ", ".join(f"{item.name} is {show(item.after)} instead of {show(item.before)}" for item in changed)
    evidence = (*restored(case, healed=healed, what="the reference's mode"), *_shift(case))
    yield make_cause(
        case, step, "resize-mode", f"{step.label}: {words}", other=other, evidence=evidence, remedy=ADVICE,
        confidence=CONFIRMED if healed else LIKELY,
        details={item.name: {"before": item.before, "after": item.after} for item in changed},
    )  # fmt: skip


def _of_size(case: Case, step: Step, other: Step, changed: list[Change]) -> Iterator[Cause]:
    if not changed:
        return
    size = next((item for item in changed if item.name == "size"), None)
    shown = size or changed[0]
    words = f"{step.label}: {shown.name} {show(shown.after)} instead of {show(shown.before)}"
    evidence = (f"relative error {case.departure.born.relative:.2g}", *_shift(case))
    remedy = (
        "export sizes, or the very scale factor that the network was trained with; a frozen or rounded one moves it"
    )
    yield make_cause(
        case, step, "resize-size", words, other=other, evidence=evidence, remedy=remedy,
        confidence=LIKELY + (0.15 if size else 0.05),
    )  # fmt: skip


def _backend(case: Case, step: Step, other: Step, changed: list[Change]) -> Iterator[Cause]:
    """The two are one by the specification: a runtime rounds."""
    words = " and ".join(f"{item.name} {show(item.after)} and {show(item.before)}" for item in changed)
    title = f"{step.label}: {words} are the same by the ONNX specification at this size; the runtime rounds one of them"
    yield make_cause(
        case, step, "backend-rounding", title, other=other, stage="runtime",
        evidence=(f"{changed_share(case):.2%} of the elements differ", *spec_verdict(case, step)),
        remedy="no fault of the export; compare with the runtime that is deployed",
        confidence=CONFIRMED,
    )  # fmt: skip


def changed_share(case: Case) -> float:
    """Share of the elements of the departing tensor that differ."""
    own = case.own
    if own is None or own.size != case.wanted.size:
        return 1.0
    return float(np.mean(own.reshape(case.wanted.shape) != case.wanted))


def spec_verdict(case: Case, step: Step) -> tuple[str, ...]:
    """Say which of the two answers is the specification's."""
    source, own = case.inputs.get(step.data[0]), case.own
    if source is None or own is None:
        return ()
    exact = resize(source, spec_of(step.parameters), own.shape, _given(step))
    if exact is None or own.shape != case.wanted.shape:
        return ()
    mine = difference(own, exact.astype(np.float32)).relative
    theirs = difference(case.wanted, exact.astype(np.float32)).relative
    right = "the candidate's runtime" if mine < theirs else "the reference"
    return (f"computed exactly, {right} is right by the specification (errors {mine:.2g} and {theirs:.2g})",)


def _given(step: Step) -> tuple[float, ...] | None:
    found = step.parameters.get("scales")
    return tuple(float(item) for item in found) if isinstance(found, tuple) else None


def _shift(case: Case) -> tuple[str, ...]:
    own, wanted = case.own, case.wanted
    if own is None or own.ndim != 4 or own.shape != wanted.shape:
        return ()
    found = spatial_shift(own[0], wanted[0])
    if found.explained < 0.5 or max(abs(found.rows), abs(found.columns)) < 0.05:
        return ()
    return (
        f"its map is shifted by {found.rows:+.2f} rows and {found.columns:+.2f} columns, which explains "
        f"{found.explained:.0%} of the error",
    )
