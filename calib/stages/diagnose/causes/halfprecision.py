"""Half precision: values beyond its range, and values that vanish in it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes.common import make_cause
from calib.types.diagnosis import Cause

LARGEST = 65504.0
SMALLEST = 2.0**-24
ADVICE = "keep this node in float32 (calib engine does so where ranges tell), or scale the values down before it"


def detect(case: Case) -> Iterator[Cause]:
    """Find float16 tensors that overflow or vanish."""
    own, wanted = case.own, case.wanted
    if own is None or own.dtype != np.float16 or own.size != wanted.size or not case.departure.steps:
        return
    step = case.departure.steps[-1]
    evidence: tuple[str, ...]
    theirs = np.asarray(wanted, np.float64).reshape(own.shape)
    finite = np.isfinite(theirs)
    lost = int(np.count_nonzero(finite & ~np.isfinite(own)))
    if lost:
        reach = float(np.abs(theirs[finite]).max(initial=0.0))
        title = f"{step.label}: overflows float16"
        evidence = (f"{lost} of {own.size} elements become infinite or NaN", f"the reference reaches {reach:.4g}")
        yield make_cause(case, step, "fp16-overflow", title, stage="fp16", evidence=evidence, remedy=ADVICE,
                         confidence=0.99, details={"elements": lost, "amax": reach})  # fmt: skip
        return
    gone = int(np.count_nonzero((own == 0) & (theirs != 0)))
    live = int(np.count_nonzero(theirs))
    if live and gone > 0.01 * live:
        title = f"{step.label}: values vanish in float16"
        evidence = (f"{gone} of {live} elements that are not zero become zero",)
        yield make_cause(case, step, "fp16-underflow", title, stage="fp16", evidence=evidence, remedy=ADVICE,
                         confidence=0.97, details={"elements": gone})  # fmt: skip
    elif case.departure.born.relative > 0:
        title = f"{step.label}: loses precision in float16"
        evidence = (f"relative error {case.departure.born.relative:.2g}",)
        yield make_cause(case, step, "fp16-precision", title, stage="fp16", evidence=evidence, remedy=ADVICE,
                         confidence=0.5)  # fmt: skip
