"""Weights with scales along another axis than their output channels."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.axes import weight_axis
from calib.core.graph import Node
from calib.core.lint.norms import BY_CHANNEL
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.strip import dequantizes
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List Conv, Gemm and MatMul whose weight has its scales along another axis than its output channels.

    Only weights that a DequantizeLinear hands straight to the layer: a permuted one is followed nowhere.
    """
    for node in subject.nodes("Conv", "Gemm", "MatMul"):
        for slot in (0, 1):
            said = _said(node, slot, subject)
            if said:
                yield at(node, said)


def _said(node: Node, slot: int, subject: Subject) -> str:
    name = node.input(slot)
    if not subject.is_constant(name) or not dequantizes(subject.network.producer(name)):
        return ""
    quantizer, wanted = subject.quantized_constant(name), weight_axis(node, slot, subject.network, BY_CHANNEL)
    if quantizer is None or not quantizer.per_channel or quantizer.axis is None or wanted is None:
        return ""
    axis = quantizer.axis_of(1)
    return "" if axis in {None, wanted} else f"scales along axis {axis} of {name!r}; output channels are axis {wanted}"


RULE = Rule(
    id="qdq-weight-axis",
    title="Weight scales along another axis than the output channels",
    why=(
        "Each scale must hold for one output channel: the integer sums of a channel are multiplied by it once. "
        "TensorRT refuses other axes or has no kernel for them; ONNX Runtime computes them in float."
    ),
    remedy="axis 0 for Conv, the output axis for Gemm (0 with transB) and MatMul (last)",
    sources=(TRT_QUANTIZED, issue("microsoft/onnxruntime", 12800)),
    levels=levels(trt="error", ort="note"),
    check=check,
)
