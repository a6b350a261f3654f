"""Scales per channel below opset 13."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ of the standard domain with several scales below opset 13."""
    if subject.network.opset >= 13:
        return
    for item in subject.quantizers:
        if item.per_channel and item.scale is not None and not item.node.domain:
            yield at(item.node, f"{item.scale.size} scales, opset {subject.network.opset}")


RULE = Rule(
    id="qdq-per-channel-opset",
    title="Scales per channel below opset 13",
    why=(
        "Until opset 12 QuantizeLinear and DequantizeLinear take one scale and know no axis: by the specification the "
        "model is invalid. Runtimes that take it guess the axis: ONNX Runtime axis 1, TensorRT axis 0."
    ),
    remedy="raise the opset to 13 with a converter (calib does), or quantize per tensor",
    sources=(operator("QuantizeLinear"), issue("NVIDIA/TensorRT", 1685), issue("Xilinx/brevitas", 426)),
    levels=everywhere("error"),
    check=check,
)
