"""Operators that were dropped, inserted, doubled or replaced, and inputs taken from another tensor."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.difference import difference
from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.causes.activations import ACTIVATIONS
from calib.stages.diagnose.causes.common import CONFIRMED, LIKELY, make_cause, restored
from calib.stages.diagnose.trace import Step
from calib.types.diagnosis import Cause

ADVICE = "compare the two graphs around this node; a graph optimization or a rewrite by hand went wrong"


def detect(case: Case) -> Iterator[Cause]:
    """Find operators that only one side has."""
    dropped = [change for change in case.changes if change.what == "dropped"]
    inserted = [change for change in case.changes if change.what == "inserted"]
    if dropped and not inserted:
        yield _dropped(case, [change.other for change in dropped if change.other])
    if inserted and not dropped:
        yield _inserted(case, [change.step for change in inserted if change.step])
    for change in case.changes:
        if change.what == "replaced" and not {str(change.before), str(change.after)} <= ACTIVATIONS:
            yield _replaced(case, change)
        if change.what == "wiring":
            yield _rewired(case, change)
    if dropped and inserted:
        yield _rebuilt(case, dropped, inserted)


def _dropped(case: Case, steps: list[Step]) -> Cause:
    names = ", ".join(f"{step.kind} {step.label}" for step in steps)
    last = next(((own, other) for own, other in reversed(case.pairs) if own and other), (None, None))
    sound = last[0] is not None and last[1] is not None and case.node_is_sound(last[0], last[1])
    evidence = [f"relative error {case.departure.born.relative:.2g} at {case.departure.tensor}"]
    if sound and last[0] is not None:
        evidence.append(f"{last[0].label} is sound: on the reference's own inputs it answers as the reference does")
    where = last[0].label if last[0] is not None else case.departure.tensor
    return make_cause(
        case, None, "operator-dropped", f"the candidate lacks {names}, before {where}", other=steps[0],
        evidence=tuple(evidence), remedy=ADVICE, confidence=CONFIRMED - 0.01 if sound or last[0] is None else LIKELY,
        details={"operators": [step.label for step in steps], "near": where},
    )  # fmt: skip


def _inserted(case: Case, steps: list[Step]) -> Cause:
    step = steps[0]
    healed = all(step.data for step in steps) and case.heals(case.run({}, skip=[item.index for item in steps]))
    doubled = _doubles(case, step)
    names = ", ".join(f"{item.kind} {item.label}" for item in steps)
    title = f"{step.kind} {step.label} is applied twice" if doubled else f"the candidate has {names}, the reference not"
    return make_cause(
        case, step, "operator-doubled" if doubled else "operator-inserted", title,
        evidence=_without(case, healed=healed), remedy=ADVICE, confidence=CONFIRMED if healed else LIKELY,
        details={"operators": [item.label for item in steps]},
    )  # fmt: skip


def _without(case: Case, *, healed: bool) -> tuple[str, ...]:
    born = f"relative error {case.departure.born.relative:.2g}"
    return (f"without it the tensor equals the reference's ({born} with it)",) if healed else (born,)


def _doubles(case: Case, step: Step) -> bool:
    """Whether the same operator, with the same parameters and weights, stands right before or behind it."""
    makers = [case.candidate.makers.get(name) for name in step.data]
    readers = [item for name in step.outputs for item in case.candidate.readers.get(name, ())]
    near = [item for item in (*makers, *readers) if item is not None]
    return any(item.kind == step.kind and item.fingerprint == step.fingerprint for item in near)


def _replaced(case: Case, change: Change) -> Cause:
    step, other = change.step, change.other
    same_function = step is not None and other is not None and _computes(case, step)
    evidence = (f"relative error {case.departure.born.relative:.2g}",)
    title = f"{change.label}: {change.after} instead of {change.before}"
    return make_cause(
        case, step, "operator-replaced", title, other=other, evidence=evidence, remedy=ADVICE,
        confidence=LIKELY + (0.1 if same_function else 0.0), details={"before": change.before, "after": change.after},
    )  # fmt: skip


def _computes(case: Case, step: Step) -> bool:
    return case.run_alone(step, case.inputs) is not None


def _rewired(case: Case, change: Change) -> Cause:
    step, other = change.step, change.other
    if step is None or other is None:
        raise AssertionError(change)
    sound = case.node_is_sound(step, other)
    ours, theirs = (set(item) if isinstance(item, tuple) else set() for item in (change.after, change.before))
    title = (
        f"{step.label} reads {', '.join(sorted(map(str, ours - theirs)))} instead of "
        f"{', '.join(sorted(map(str, theirs - ours)))}"
    )
    evidence = restored(case, healed=sound, what="the reference's inputs")
    return make_cause(
        case, step, "rewired", title, other=other, evidence=evidence, remedy=ADVICE,
        confidence=CONFIRMED if sound else LIKELY,
    )  # fmt: skip


def _rebuilt(case: Case, dropped: list[Change], inserted: list[Change]) -> Cause:
    """The two build the tensor from other operators, and not the same one."""
    names = [", ".join(change.kind for change in changes) for changes in (dropped, inserted)]
    last = case.departure.steps[-1]
    return make_cause(
        case, last, "operators-differ", f"{last.label}: built of {names[1]} instead of {names[0]}",
        other=case.departure.reference_steps[-1] if case.departure.reference_steps else None,
        evidence=(f"relative error {difference(case.own, case.wanted).relative:.2g}",), remedy=ADVICE, confidence=0.45,
    )  # fmt: skip
