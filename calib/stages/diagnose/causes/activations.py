"""Activation functions: another one, or other bounds and slopes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

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
from calib.types.diagnosis import Cause

ACTIVATIONS = frozenset(
    {
        "Relu", "Clip", "LeakyRelu", "PRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "HardSwish", "Swish",
        "Tanh", "Softplus", "Softsign", "Mish", "Gelu", "Erf", "ThresholdedRelu", "Softmax", "LogSoftmax", "Abs", "Exp",
    }
)  # fmt: skip
PARAMETERS = frozenset({"min", "max", "alpha", "beta", "gamma", "approximate"})
ADVICE = "export the activation that the network was trained with, bounds included (ReLU6 is Clip from 0 to 6)"


def detect(case: Case) -> Iterator[Cause]:
    """Find activations of another kind or with other parameters."""
    for change in case.changes:
        if change.what == "replaced" and {str(change.before), str(change.after)} <= ACTIVATIONS:
            yield _replaced(case, change)
    for change in parameter_changes(case, ACTIVATIONS, PARAMETERS):
        yield _changed(case, change)
    for change in case.changes:
        if change.what == "weight" and change.kind == "Clip":
            yield _slope(case, change)


def _replaced(case: Case, change: Change) -> Cause:
    step = change.step
    title = f"{change.label}: {change.after} instead of {change.before}"
    born = f"relative error {case.departure.born.relative:.2g}"
    return make_cause(
        case, step, "activation", title, other=change.other, evidence=(born, *_range(case)), remedy=ADVICE,
        confidence=0.9, details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _changed(case: Case, change: Change) -> Cause:
    step = change.step
    healed = step is not None and change.before is not None
    if step is not None and change.before is not None and change.after is not None:
        healed = case.heals_with(step, Mend(parameters={change.name: change.before}))
    title = f"{change.label}: {change.name} is {show(change.after)} instead of {show(change.before)}"
    return make_cause(
        case, step, "activation", title, other=change.other,
        evidence=(*restored(case, healed=healed, what=f"the reference's {change.name}"), *_range(case)),
        remedy=ADVICE, confidence=CONFIRMED if healed else LIKELY,
        details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _slope(case: Case, change: Change) -> Cause:
    step, other = change.step, change.other
    theirs = None if other is None else other.weights.get(change.name)
    healed = step is not None and theirs is not None and case.heals_with(step, Mend(weights={change.name: theirs}))
    words = change.weights.words if change.weights else ""
    return make_cause(
        case, step, "activation", f"{change.label}: its {change.name} changed: {words}", other=other,
        evidence=restored(case, healed=healed, what=f"the reference's {change.name}"), remedy=ADVICE,
        confidence=CONFIRMED if healed else LIKELY,
    )  # fmt: skip


def _range(case: Case) -> tuple[str, ...]:
    own = case.own
    if own is None or own.dtype.kind != "f" or not own.size:
        return ()
    with np.errstate(invalid="ignore"):
        mine, theirs = (f"{float(np.min(item)):.4g} to {float(np.max(item)):.4g}" for item in (own, case.wanted))
    return (f"the tensor runs from {mine} instead of {theirs}",)
