"""Quantized transposed convolutions."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject, number


def check(subject: Subject) -> Iterator[Sighting]:
    """List transposed convolutions in INT8 that are grouped, or whose weights have a scale per channel."""
    for node in subject.nodes("ConvTranspose"):
        quantizer = subject.quantized_constant(node.input(1)) if node.input(1) else None
        if quantizer is None:
            continue
        group = int(number(node, "group", 1))
        if group > 1:
            yield at(node, f"group {group}")
        elif quantizer.per_channel:
            yield at(node, f"scales along axis {quantizer.axis_of(1)} of a weight [Cin, Cout, …]")


RULE = Rule(
    id="qdq-deconv",
    title="Transposed convolution quantized as TensorRT versions disagree on",
    why=(
        "The output channels of its weight are axis 1, where the specification puts them and ONNX Runtime reads them; "
        "TensorRT's kernels and NVIDIA's own tools have used axis 0 and 1 by turns, and wrong results were reported. "
        "Grouped ones have no INT8 kernel."
    ),
    remedy=(
        "one scale for its weight, or keep it in float (`--conv-transpose` settings of the placement); compare its "
        "output"
    ),
    sources=(
        TRT_QUANTIZED,
        issue("NVIDIA/TensorRT", 2380),
        issue("NVIDIA/TensorRT", 1694),
        issue("NVIDIA/TensorRT", 1934),
    ),
    levels=levels(trt="warning"),
    check=check,
)
