"""What detectors share: making a cause at a step of a case."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.trace import Step, Value
from calib.types.diagnosis import Cause, Stage

Detector = Callable[[Case], Iterator[Cause]]
CONFIRMED, LIKELY, GUESSED = 0.98, 0.7, 0.4
"""Confidence where mending restored the tensor, where it improved it, and where nothing could be tried."""


def make_cause(
    case: Case,
    step: Step | None,
    kind: str,
    title: str,
    *,
    other: Step | None = None,
    stage: Stage = "export",
    evidence: tuple[str, ...] = (),
    remedy: str = "",
    confidence: float = GUESSED,
    details: Mapping[str, Any] | None = None,
) -> Cause:
    """Make a cause at a step of the candidate, or of the reference where the candidate has none.

    Args:
        case: the departure.
        step: the candidate's step.
        kind: stable code.
        title: one sentence.
        other: the reference's step.
        stage: where accuracy falls.
        evidence: what was seen.
        remedy: what to do.
        confidence: 0..1.
        details: for machines.
    """
    named = step or other
    return Cause(
        stage=stage,
        kind=kind,
        title=title,
        node=named.label if named else case.departure.tensor,
        tensor=case.departure.tensor,
        reference_node=other.label if other else "",
        evidence=evidence,
        remedy=remedy,
        confidence=confidence,
        details=dict(details or {}),
    )


def parameter_changes(case: Case, kinds: frozenset[str], names: frozenset[str] | None = None) -> Iterator[Change]:
    """Changed parameters of some operators."""
    for change in case.changes:
        if change.what == "parameter" and change.kind in kinds and (names is None or change.name in names):
            yield change


def show(value: Value) -> str:
    """A parameter for people."""
    if value is None:
        return "none"
    if isinstance(value, tuple):
        return "[" + ", ".join(show(item) for item in value[:12]) + (", …]" if len(value) > 12 else "]")
    return f"{value:g}" if isinstance(value, float) else str(value)


def restored(case: Case, *, healed: bool, what: str) -> tuple[str, ...]:
    """Say whether putting the reference's value back restored the tensor."""
    before = f"relative error {case.departure.born.relative:.2g}"
    if healed:
        return (f"with {what} put back the tensor equals the reference's ({before} before)",)
    return (f"{before}; {what} alone does not restore it",)
