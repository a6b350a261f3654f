"""Layers of which one operand is quantized."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List layers whose weight has a pair and whose input has none, or the other way round."""
    if not subject.quantizers:
        return
    for node in subject.layers():
        weight, data = subject.weight_input(node), subject.data_input(node)
        if not weight or not data:
            continue
        quantized = subject.quantized_constant(weight) is not None
        if quantized != subject.from_dequantize(data):
            missing = "input" if quantized else "weight"
            yield at(node, f"{missing} {data if quantized else weight!r} has no pair".replace("''", "'"))


RULE = Rule(
    id="qdq-half-layer",
    title="Layer of which only one operand is quantized",
    why=(
        "TensorRT has no kernel for INT8 times float: the layer runs in float, and the rounding of the quantized "
        "operand is paid for nothing."
    ),
    remedy="give both operands a pair, or neither",
    sources=(TRT_QUANTIZED,),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
