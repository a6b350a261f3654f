"""QuantizeLinear without zero point."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each QuantizeLinear that states its integer type neither by a zero point nor by an attribute."""
    for item in subject.quantizers:
        standard = item.node.op_type == "QuantizeLinear"
        if item.quantizes and standard and not item.zero_given and not item.node.attributes.get("output_dtype"):
            yield at(item.node, f"of {item.node.input(0)!r}")


RULE = Rule(
    id="qdq-implicit-type",
    title="QuantizeLinear without zero point: UINT8 by the specification, INT8 in TensorRT",
    why=(
        "By the ONNX specification a QuantizeLinear without zero point and output_dtype makes UINT8: negative values "
        "become 0 in ONNX Runtime, which is right. TensorRT takes it for INT8. The two compute different networks."
    ),
    remedy="give every pair an INT8 zero point of 0",
    sources=(operator("QuantizeLinear"), TRT_QUANTIZED),
    levels=everywhere("warning"),
    check=check,
)
