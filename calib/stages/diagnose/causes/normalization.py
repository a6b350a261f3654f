"""Batch normalization: epsilon, statistics, training mode; also where one side has folded it into the convolution."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.weightdiff import slice_factors
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

NORMS = frozenset({"BatchNormalization", "InstanceNormalization", "GroupNormalization", "LayerNormalization"})
STATISTICS = frozenset({"input_mean", "input_var", "mean", "var"})
EPSILON_ADVICE = "export with the epsilon that the network was trained with (PyTorch 1e-5, Keras 1e-3)"
STATISTICS_ADVICE = "export in evaluation mode from the trained checkpoint: model.eval() before the export"


def detect(case: Case) -> Iterator[Cause]:
    """Find normalizations that normalize otherwise."""
    for change in parameter_changes(case, NORMS):
        yield from _parameter(case, change)
    for change in case.changes:
        if change.what == "weight" and change.kind in NORMS and change.step and change.weights:
            yield _statistics(case, change)
    yield from _folded(case)
    yield from _trained(case)


def _parameter(case: Case, change: Change) -> Iterator[Cause]:
    step = change.step
    if step is None:
        return
    healed = case.heals_with(step, Mend(parameters={change.name: change.before}))
    training = change.name in {"training_mode", "is_test"}
    kind = "bn-training" if training else "bn-epsilon" if change.name == "epsilon" else "normalization"
    yield make_cause(
        case, step, kind, f"{step.label}: {change.name} is {show(change.after)} instead of {show(change.before)}",
        other=change.other, evidence=restored(case, healed=healed, what=f"the reference's {change.name}"),
        remedy=STATISTICS_ADVICE if training else EPSILON_ADVICE, confidence=CONFIRMED if healed else LIKELY,
        details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _statistics(case: Case, change: Change) -> Cause:
    if change.step is None or change.other is None or change.weights is None:
        raise AssertionError(change)
    theirs = change.other.weights.get(change.name)
    healed = theirs is not None and case.heals_with(change.step, Mend(weights={change.name: theirs}))
    running = change.name in STATISTICS
    what = "running statistics" if running else "scale or shift"
    return make_cause(
        case, change.step, "bn-statistics" if running else "bn-affine",
        f"{change.step.label}: the {what} {change.name} changed: {change.weights.words}", other=change.other,
        evidence=restored(case, healed=healed, what=f"the reference's {change.name}"), remedy=STATISTICS_ADVICE,
        confidence=CONFIRMED if healed else LIKELY,
    )  # fmt: skip


def _folded(case: Case) -> Iterator[Cause]:
    """One side has the normalization as a step, the other in the weights of the convolution."""
    ours, theirs = case.departure.steps, case.departure.reference_steps
    for norm_side, plain_side in ((ours, theirs), (theirs, ours)):
        norm = next((step for step in norm_side if step.kind == "BatchNormalization"), None)
        conv = next((step for step in norm_side if step.kind in {"Conv", "ConvTranspose"}), None)
        folded = next((step for step in plain_side if step.kind in {"Conv", "ConvTranspose"}), None)
        bare = not any(step.kind == "BatchNormalization" for step in plain_side)
        if norm and conv and folded and bare and "W" in conv.weights and "W" in folded.weights:
            yield from _epsilon(case, norm, conv, folded)


def _epsilon(case: Case, norm: Step, conv: Step, folded: Step) -> Iterator[Cause]:
    """Work out which epsilon the folded weights were made with."""
    axis = 1 if conv.kind == "ConvTranspose" else 0
    before, after = (np.asarray(step.weights["W"], np.float64) for step in (conv, folded))
    factors = slice_factors(before, after, axis) if before.shape == after.shape else None
    scale, variance = (np.asarray(norm.weights.get(name, ()), np.float64) for name in ("scale", "input_var"))
    if factors is None or len(factors) != scale.size or scale.size != variance.size:
        return
    stated = float(norm.parameters.get("epsilon") or 1e-5)  # type: ignore[arg-type]
    used = _used_epsilon(np.asarray(factors), scale, variance)
    expected = scale / np.sqrt(variance + stated)
    if np.allclose(factors, expected, rtol=1e-5):
        return
    own, other = (norm, folded) if norm in case.departure.steps else (folded, norm)
    if used is not None:
        title = f"{own.label}: the batch norm is folded with epsilon {used:.3g}, the other side has {stated:.3g}"
        details: dict[str, Any] = {"folded": used, "stated": stated}
        yield make_cause(
            case, own, "bn-epsilon", title, other=other, remedy=EPSILON_ADVICE, confidence=CONFIRMED, details=details,
            evidence=(f"every channel's factor is scale / sqrt(variance + {used:.3g})",),
        )  # fmt: skip
        return
    title = f"{own.label}: the batch norm was folded with other statistics than the other side has"
    yield make_cause(
        case, own, "bn-statistics", title, other=other, remedy=STATISTICS_ADVICE, confidence=LIKELY,
        evidence=(f"factors of the channels are {min(factors):.3g} to {max(factors):.3g}",),
    )  # fmt: skip


def _used_epsilon(
    factors: NDArray[np.float64], scale: NDArray[np.float64], variance: NDArray[np.float64]
) -> float | None:
    known = (factors != 0) & (scale != 0)
    if not known.any():
        return None
    found = (scale[known] / factors[known]) ** 2 - variance[known]
    order = np.argsort(variance[known])
    middle = float(np.median(found[order[: max(1, len(order) // 2)]]))
    fits = np.allclose(factors[known], scale[known] / np.sqrt(np.maximum(variance[known] + middle, 1e-30)), rtol=1e-3)
    return middle if middle > 0 and fits and np.all(np.sign(factors[known]) == np.sign(scale[known])) else None


def _trained(case: Case) -> Iterator[Cause]:
    """The tensor is normalized by the image's own statistics: training mode."""
    own = case.own
    for step in case.departure.steps:
        if step.kind != "BatchNormalization" or own is None or own.ndim < 3 or len(step.outputs) < 1:
            continue
        scale, shift = (np.asarray(step.weights.get(name, ()), np.float64) for name in ("scale", "B"))
        if scale.size != own.shape[1] or step.parameters.get("training_mode") in (1,):
            continue
        axes = (0, *range(2, own.ndim))
        mean, deviation = own.mean(axis=axes, dtype=np.float64), own.std(axis=axes, dtype=np.float64)
        live = np.abs(scale) > 1e-6
        if np.allclose(mean[live], shift[live], atol=1e-3) and np.allclose(
            deviation[live], np.abs(scale[live]), rtol=5e-2
        ):
            yield make_cause(
                case, step, "bn-training", f"{step.label}: normalizes by the image's own statistics",
                evidence=("mean and deviation of every channel are exactly the shift and scale",),
                remedy=STATISTICS_ADVICE, confidence=LIKELY,
            )  # fmt: skip
