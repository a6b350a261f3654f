"""Scales per channel whose axis is left out."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each per-channel Q and DQ of opset 13 or higher without the axis attribute."""
    if subject.network.opset < 13:
        return
    for item in subject.quantizers:
        if item.per_channel and item.scale is not None and item.scale.ndim == 1 and item.axis is None:
            shape = (
                "" if item.shape is None else f" of {'x'.join('?' if one is None else str(one) for one in item.shape)}"
            )
            yield at(item.node, f"{item.scale.size} scales{shape}")


RULE = Rule(
    id="qdq-axis",
    title="Scales per channel without axis: axis 1 by the specification, axis 0 in TensorRT",
    why=(
        "The specification's default is axis 1, which ONNX Runtime follows and is right to. TensorRT's parser takes "
        "axis 0. A square weight is scaled along the wrong axis without a word; others fail to load in one of the "
        "two."
    ),
    remedy="always write axis: 0 for Conv, the output axis for Gemm and MatMul",
    sources=(operator("QuantizeLinear"), TRT_QUANTIZED),
    levels=levels(trt="error", ort="warning"),
    check=check,
)
