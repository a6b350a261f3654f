"""Axes, orders and offsets: Concat, Softmax, Transpose, Reshape, Slice, Split, Gather, Pad, reductions."""

from __future__ import annotations

from collections.abc import Iterator

from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.causes.common import CONFIRMED, LIKELY, make_cause, parameter_changes, restored, show
from calib.stages.diagnose.steprun import Mend
from calib.types.diagnosis import Cause

KINDS = {
    "Concat": "concat-axis",
    "Softmax": "softmax-axis",
    "LogSoftmax": "softmax-axis",
    "Hardmax": "softmax-axis",
    "ArgMax": "argmax",
    "ArgMin": "argmax",
    "Transpose": "transposed",
    "Reshape": "reshape",
    "Flatten": "reshape",
    "Squeeze": "reshape",
    "Unsqueeze": "reshape",
    "Expand": "reshape",
    "Slice": "slice-offset",
    "Split": "slice-offset",
    "Gather": "slice-offset",
    "Pad": "padding",
    "DepthToSpace": "depth-to-space",
    "SpaceToDepth": "depth-to-space",
    "Gemm": "matrix-product",
    "MatMul": "matrix-product",
    "Tile": "reshape",
    "GridSample": "grid-sample",
    "TopK": "argmax",
    "LRN": "normalization",
    "CumSum": "reduction",
}
ADVICE = {
    "concat-order": "keep the order in which the network concatenates; the next layer's weights depend on it",
    "softmax-axis": "softmax over the classes; below opset 13 the operator flattens from its axis on",
    "slice-offset": "check the bounds of the slices; a frozen size or an off-by-one moves them",
    "padding": "check mode, amounts and value of the padding",
}


def detect(case: Case) -> Iterator[Cause]:
    """Find operators that arrange their data otherwise."""
    for change in case.changes:
        if change.what == "order" and change.step is not None:
            yield _order(case, change)
    for change in parameter_changes(case, frozenset(KINDS)):
        yield _parameter(case, change, KINDS[change.kind])
    for change in case.changes:
        if change.what == "parameter" and change.kind.startswith("Reduce"):
            yield _parameter(case, change, "reduction")
        if change.what == "weight" and change.kind in {"Gather", "Slice"}:
            yield _indices(case, change)


def _order(case: Case, change: Change) -> Cause:
    step, other = change.step, change.other
    if step is None or other is None:
        raise AssertionError(change)
    names = [case.alignment.matches[name].reference for name in step.data]
    places = tuple(names.index(name) for name in other.data) if set(other.data) == set(names) else ()
    healed = bool(places) and case.heals_with(step, Mend(order=places))
    kind = "concat-order" if step.kind == "Concat" else "operands-swapped"
    return make_cause(
        case, step, kind, f"{step.label}: its inputs are in another order", other=other,
        evidence=(
            *restored(case, healed=healed, what="the reference's order"),
            f"{', '.join(names)} instead of {', '.join(other.data)}",
        ),
        remedy=ADVICE.get(kind, "restore the order of the operands"), confidence=CONFIRMED if healed else LIKELY,
    )  # fmt: skip


def _parameter(case: Case, change: Change, kind: str) -> Cause:
    step = change.step
    if step is None:
        raise AssertionError(change)
    changed = {item.name: item.before for item in case.changes if item.what == "parameter" and item.step is step}
    healed = case.heals_with(step, Mend(parameters={change.name: change.before}))
    healed = healed or case.heals_with(step, Mend(parameters=changed))
    kind = "transposed-weights" if change.name in {"transA", "transB"} else kind
    return make_cause(
        case, step, kind, f"{step.label}: {change.name} is {show(change.after)} instead of {show(change.before)}",
        other=change.other, evidence=restored(case, healed=healed, what=f"the reference's {change.name}"),
        remedy=ADVICE.get(kind, f"export the {step.kind} with the reference's {change.name}"),
        confidence=CONFIRMED if healed else LIKELY, details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _indices(case: Case, change: Change) -> Cause:
    step, other = change.step, change.other
    theirs = None if other is None else other.weights.get(change.name)
    healed = step is not None and theirs is not None and case.heals_with(step, Mend(weights={change.name: theirs}))
    words = change.weights.words if change.weights else ""
    return make_cause(
        case, step, "slice-offset", f"{change.label}: its {change.name} changed: {words}", other=other,
        evidence=restored(case, healed=healed, what=f"the reference's {change.name}"), remedy=ADVICE["slice-offset"],
        confidence=CONFIRMED if healed else LIKELY,
    )  # fmt: skip
