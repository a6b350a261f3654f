"""Compare two networks on one image: align them, keep what is more than rounding, and name each departure's cause."""

from __future__ import annotations

from dataclasses import dataclass, replace

from calib.core.difference import Difference
from calib.stages.diagnose.alignment import Alignment, align
from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes import explain
from calib.stages.diagnose.noise import is_departure
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.trace import Trace
from calib.types.diagnosis import Cause


@dataclass(frozen=True)
class Comparison:
    """Two networks side by side.

    Attributes:
        alignment: which tensor is which, and the error each step makes.
        causes: one a departure beyond rounding, in network order.
    """

    alignment: Alignment
    causes: tuple[Cause, ...]

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
    causes = []
    for departure in alignment.departures:
        case = Case(departure, reference, candidate, alignment, runtime)
        if departure.strong or is_departure(case):
            cause = explain(case)
            causes.append(replace(cause, details={**_numbers(case), **cause.details}))
    return Comparison(alignment, tuple(causes))


def _numbers(case: Case) -> dict[str, object]:
    born = case.departure.born
    return {
        "relative_error": born.relative,
        "sqnr_db": born.sqnr_db,
        "noise": case.noise,
        "reference_tensor": case.departure.reference,
    }
