"""Convolutions and pools with another window: dilation, padding, stride, groups, output padding, rounding of sizes."""

from __future__ import annotations

from collections.abc import Iterator

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

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose", "DeformConv"})
POOLS = frozenset({"MaxPool", "AveragePool", "LpPool"})
KINDS = {
    "dilations": "dilation",
    "pads": "padding",
    "strides": "stride",
    "group": "groups",
    "output_padding": "output-padding",
    "kernel_shape": "kernel",
    "ceil_mode": "pool-rounding",
    "count_include_pad": "pool-padding",
    "p": "pool-norm",
}
ADVICE = {
    "pool-rounding": "export ceil_mode as the network has it; the output is a cell larger with it",
    "pool-padding": "export count_include_pad as the network has it (PyTorch's default is True)",
    "output-padding": "keep output_padding through every rewrite; without it the output is a row and a column short",
    "padding": "write pads out; automatic padding and uneven pads are where exporters differ",
}


def detect(case: Case) -> Iterator[Cause]:
    """Find windows of another shape."""
    for change in parameter_changes(case, CONVOLUTIONS | POOLS):
        if change.name in KINDS:
            yield _cause(case, change)


def _cause(case: Case, change: Change) -> Cause:
    step = change.step
    if step is None:
        raise AssertionError(change)
    healed = case.heals_with(step, Mend(parameters={change.name: change.before}))
    every = {item.name: item.before for item in case.changes if item.what == "parameter" and item.step is step}
    if not healed and len(every) > 1:
        healed = case.heals_with(step, Mend(parameters=every))
    kind = KINDS[change.name]
    shapes = _shapes(case)
    return make_cause(
        case, step, kind, f"{step.label}: {change.name} is {show(change.after)} instead of {show(change.before)}",
        other=change.other,
        evidence=(*restored(case, healed=healed, what=f"the reference's {change.name}"), *shapes),
        remedy=ADVICE.get(kind, f"export the {step.kind} with the reference's {change.name}"),
        confidence=CONFIRMED if healed else LIKELY,
        details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _shapes(case: Case) -> tuple[str, ...]:
    own = case.own
    if own is None or own.shape == case.wanted.shape:
        return ()
    return (f"the output is {list(own.shape)} instead of {list(case.wanted.shape)}",)
