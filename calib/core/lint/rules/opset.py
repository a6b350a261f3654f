"""Operator set and IR versions that a target does not parse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from calib.core.lint.rule import Levels, Rule, Severity, Sighting, whole
from calib.core.lint.sources import ONNX_VERSIONS, ORT_VERSIONS, TRT_OPERATORS, TRT_OPSETS
from calib.core.lint.subject import Subject
from calib.core.plan import Target

REFUSED: Mapping[Target, int] = {"trt10": 7, "trt11": 7}
"""Below this TensorRT's parser refuses the model."""
SPANS: Mapping[Target, tuple[int, int]] = {"trt10": (9, 24), "trt11": (9, 25), "ort": (7, 23)}
"""First and last opset of a target: TensorRT 10's operator matrix names 9 to 20, and its releases brought operators
of 23 and 24; TensorRT 11.5 names 25; ONNX Runtime 1.23 refuses more than 23."""
MATRIX = 20
"""Last opset of TensorRT 10.0's operator matrix."""


def check(subject: Subject) -> Iterator[Sighting]:
    """Report an opset outside of what a target documents."""
    standard = "" in subject.network.opsets or any(not node.domain for node in subject.network.nodes)
    for target, span in SPANS.items() if standard else ():
        severity = _severity(subject.network.opset, target)
        if severity is not None:
            found: Levels = {target: severity}
            yield whole(f"opset {subject.network.opset}; {target} takes {span[0]} to {span[1]}", found)


def _severity(opset: int, target: Target) -> Severity | None:
    first, last = SPANS[target]
    if opset < REFUSED.get(target, 0):
        return "error"
    if not first <= opset <= last:
        return "warning"
    return "note" if target == "trt10" and opset > MATRIX else None


RULE = Rule(
    id="opset",
    title="Operator set version outside of what the target parses",
    why=(
        "A parser that does not know an opset refuses the model, or reads its operators by the rules of another: "
        "axes, modes and types changed between versions. TensorRT 10.0 documents opsets up to 20; later 10.x releases "
        "brought operators of 21 to 24 one by one."
    ),
    remedy="export at opset 17 or 18, which every target parses; `calib build` raises an old opset with a converter",
    sources=(TRT_OPSETS, TRT_OPERATORS, ORT_VERSIONS, ONNX_VERSIONS),
    levels={"trt10": "warning", "trt11": "warning", "ort": "warning"},
    check=check,
)
