"""Integer types that TensorRT does not quantize to."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Levels, Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS, TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject

OTHER = ("float8", "float4", "int4")
"""Types that TensorRT takes for weights or on some GPUs; they are no INT8, and no fault."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ whose quantized values are not INT8; INT32 constants are the rule of biases."""
    for item in subject.quantizers:
        kind = item.integers
        if kind is None or kind == "int8" or (kind == "int32" and item.constant):
            continue
        if kind == "uint8" and item.quantizes and not item.zero_given and not item.node.attributes.get("output_dtype"):
            continue  # the type is the default, which runtimes read differently: a rule of its own
        yield at(item.node, kind, _levels(kind))


def _levels(kind: str) -> Levels | None:
    return levels(trt="note") if kind.startswith(OTHER) else None


RULE = Rule(
    id="qdq-type",
    title="Quantization to another type than INT8",
    why=(
        "TensorRT quantizes to signed INT8 (FP8, FP4 and INT4 weights on some GPUs) and refuses UINT8, INT16 and the "
        "rest. ONNX Runtime's own quantizer writes UINT8 activations by default."
    ),
    remedy=(
        "quantize again with symmetric INT8: activation_type=QInt8, ActivationSymmetric=True; or let `calib build` do "
        "it"
    ),
    sources=(TRT_QUANTIZED, TRT_OPERATORS, operator("QuantizeLinear")),
    levels=levels(trt="error"),
    check=check,
)
