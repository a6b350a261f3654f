"""Compare two networks on one image: align them, keep what is more than rounding, and name each departure's cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from calib.core.difference import APART, Difference
from calib.stages.diagnose.alignment import align
from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes import explain
from calib.stages.diagnose.matches import Alignment
from calib.stages.diagnose.noise import FLOOR, is_departure
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.trace import Trace
from calib.types.diagnosis import Cause


@dataclass(frozen=True)
class Comparison:
    """Two networks side by side.

    Attributes:
        alignment: which tensor is which, and the error each step makes.
        causes: one a departure beyond rounding, in network order.
        remarks: differences of the graphs that do nothing on this image.
    """

    alignment: Alignment
    causes: tuple[Cause, ...]
    remarks: tuple[Cause, ...] = ()

    def born(self, tensor: str) -> Difference | None:
        """Error that a tensor's own step makes; None where it has no counterpart."""
        match = self.alignment.matches.get(tensor)
        return None if match is None else match.born


def compare(reference: Trace, candidate: OnnxTrace, runtime: Runtime) -> Comparison:
    """Find where the candidate parts from the reference, and why.

    Args:
        reference: with the value of every tensor.
        candidate: values are not needed.
        runtime: runs single steps.
    """
    alignment = align(reference, candidate, runtime)
    faults: list[Cause] = []
    remarks: list[Cause] = []
    moved = False
    for departure in alignment.departures:
        case = Case(departure, reference, candidate, alignment, runtime, shapes_moved=moved)
        if moved and not case.changes:
            continue  # what it differs by, it was handed as a size
        if is_departure(case):
            faults.append(_told(case))
            moved = moved or departure.born is APART or departure.born.elements == 0
        elif case.is_pair and case.changes and departure.born.relative <= FLOOR:
            remarks.append(_latent(case))
    return Comparison(alignment, tuple(merged(faults)), tuple(remarks))


def _told(case: Case) -> Cause:
    cause = explain(case)
    return replace(cause, details={**_numbers(case), **cause.details})


def _latent(case: Case) -> Cause:
    """A difference that does nothing on this image; on others it may."""
    cause = explain(case)
    evidence = ("no effect on this image; it may have one on others",)
    return replace(cause, severity="remark", evidence=evidence, confidence=min(cause.confidence, 0.5))


def merged(causes: Iterable[Cause]) -> Iterator[Cause]:
    """One cause where a fault shows at several tensors, as a dropped operator does at all that read it."""
    found: dict[tuple[str, str, str], Cause] = {}
    for cause in causes:
        key = (cause.kind, cause.node, cause.reference_node)
        if key not in found:
            found[key] = cause
            continue
        seen = (*found[key].details.get("also_at", ()), cause.tensor)
        found[key] = replace(found[key], details={**found[key].details, "also_at": seen})
    yield from found.values()


def _numbers(case: Case) -> dict[str, object]:
    born = case.departure.born
    return {
        "relative_error": born.relative,
        "sqnr_db": born.sqnr_db,
        "noise": case.noise,
        "reference_tensor": case.departure.reference,
    }
