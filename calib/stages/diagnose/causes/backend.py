"""No difference in the graph: the runtime answers otherwise than the reference; and what nothing else explains."""

from __future__ import annotations

from collections.abc import Iterator

from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes.common import make_cause
from calib.stages.diagnose.causes.resize import changed_share, spec_verdict
from calib.types.diagnosis import Cause

ADVICE = "no fault of the export; compare with the runtime that is deployed, and report the node to this one"


def detect(case: Case) -> Iterator[Cause]:
    """Find a piece without any difference, and fall back to an unexplained one."""
    last = case.departure.steps[-1] if case.departure.steps else None
    other = case.departure.reference_steps[-1] if case.departure.reference_steps else None
    born = f"relative error {case.departure.born.relative:.2g}"
    if not case.changes:
        share = f"{changed_share(case):.2%} of the elements differ"
        verdict = spec_verdict(case, last) if last is not None and last.kind == "Resize" else ()
        title = f"{last.label if last else case.departure.tensor}: the two runtimes answer differently to the same node"
        yield make_cause(
            case, last, "backend-rounding", title, other=other, stage="runtime",
            evidence=(born, share, *verdict), remedy=ADVICE, confidence=0.6,
        )  # fmt: skip
        return
    names = sorted({f"{change.label}: {change.what} {change.name}".strip() for change in case.changes})
    title = f"{last.label if last else case.departure.tensor}: differs from the reference"
    yield make_cause(
        case, last, "unexplained", title, other=other, evidence=(born, *names[:4]), confidence=0.1,
        remedy="compare the two graphs around this node",
    )  # fmt: skip
