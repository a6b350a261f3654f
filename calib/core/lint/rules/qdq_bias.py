"""Quantized biases."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List layers whose bias passes a Q/DQ pair or is stored as integers."""
    for node in subject.nodes("Conv", "ConvTranspose", "Gemm"):
        bias = node.input(2)
        quantizer = subject.quantized_constant(bias) if bias else None
        if quantizer is not None:
            yield at(node, f"bias {bias!r} is dequantized from {quantizer.integers or 'integers'}")


RULE = Rule(
    id="qdq-bias",
    title="Bias behind Q/DQ, or stored as INT32",
    why=(
        "TensorRT keeps biases in float and its parser has no INT32 DequantizeLinear. An INT32 bias also overflows "
        "where the product of input and weight scale is tiny. ONNX Runtime's quantizer writes them by default."
    ),
    remedy="quantize with QuantizeBias=False, or let `calib build` write the pairs",
    sources=(TRT_QUANTIZED, operator("DequantizeLinear"), "https://github.com/microsoft/onnxruntime/pull/22020"),
    levels=levels(trt="error"),
    check=check,
)
