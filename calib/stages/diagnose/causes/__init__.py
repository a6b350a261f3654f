"""Detectors: from a departure to its cause, with evidence. One module a kind of cause, one line here."""

from collections.abc import Mapping

from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes import (
    activations,
    arrangement,
    backend,
    halfprecision,
    inputs,
    normalization,
    opset,
    resize,
    structure,
    weights,
    windows,
)
from calib.stages.diagnose.causes.common import Detector
from calib.types.diagnosis import Cause

DETECTORS: Mapping[str, Detector] = {
    "opset": opset.detect,
    "inputs": inputs.detect,
    "resize": resize.detect,
    "normalization": normalization.detect,
    "windows": windows.detect,
    "activations": activations.detect,
    "arrangement": arrangement.detect,
    "halfprecision": halfprecision.detect,
    "structure": structure.detect,
    "weights": weights.detect,
    "backend": backend.detect,
}
"""In the order of precedence among equally confident answers."""


def explain(case: Case) -> Cause:
    """Find the likeliest cause of a departure; there is always one, be it an unexplained difference."""
    found = [cause for detect in DETECTORS.values() for cause in detect(case)]
    return max(found, key=lambda cause: cause.confidence)
