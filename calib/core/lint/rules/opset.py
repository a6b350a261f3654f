"""Operator set and IR versions that a target does not parse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calib.core.lint.rule import Levels, Rule, Severity, Sighting, whole
from calib.core.lint.sources import ONNX_VERSIONS, ORT_VERSIONS, TRT_OPERATORS, TRT_OPSETS
from calib.core.lint.subject import Subject
from calib.core.plan import Target

REFUSED: Mapping[Target, int] = {"trt10": 7, "trt11": 7, "ort": 7}
"""Below this a target refuses the model, or its operators have no kernels."""
OLDEST: Mapping[Target, int] = {"trt10": 9, "trt11": 9}
"""First opset that a target documents."""
NEWEST: Mapping[Target, int] = {"trt10": 24, "trt11": 25, "ort": 23}
"""Last opset that a release of the target (TensorRT 10.16, 11.5; ONNX Runtime 1.23) documents or implements."""


def check(subject: Subject) -> Iterator[Sighting]:
    """Report an opset outside of what a target documents."""
    opset = subject.network.opset
    for target in REFUSED:
        severity = _severity(opset, target)
        if severity is not None:
            found: Levels = {target: severity}
            spans = f"{target} parses {OLDEST.get(target, REFUSED[target])} to {NEWEST[target]}"
            yield whole(f"opset {opset}; {spans}", found)


def _severity(opset: int, target: Target) -> Severity | None:
    if opset < REFUSED[target]:
        return "error"
    if opset < OLDEST.get(target, 0) or opset > NEWEST[target]:
        return "warning"
    return None


RULE = Rule(
    id="opset",
    title="Operator set version outside of what the target parses",
    why=(
        "A parser that does not know an opset refuses the model, or reads its operators by the rules of another: "
        "axes, modes and types changed between versions."
    ),
    remedy="export at opset 17 or 18, which every target parses; `calib build` raises an old opset with a converter",
    sources=(TRT_OPSETS, TRT_OPERATORS, ORT_VERSIONS, ONNX_VERSIONS),
    levels={"trt10": "warning", "trt11": "warning", "ort": "warning"},
    check=check,
)
