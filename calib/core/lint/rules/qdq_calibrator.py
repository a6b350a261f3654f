"""Q/DQ beside calibration."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, whole
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """Report a network that brings its own ranges."""
    pairs = sum(item.quantizes and not item.constant for item in subject.quantizers)
    if pairs:
        yield whole(f"{pairs} pairs on activations")


RULE = Rule(
    id="qdq-calibrator",
    title="With Q/DQ in the network TensorRT ignores calibrator and cache",
    why=(
        "Explicit quantization goes before implicit: tensors without a pair stay in float whatever a cache says of "
        "them."
    ),
    remedy="give TensorRT either the Q/DQ network, or the float one and a cache",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 1837)),
    levels={"trt10": "note"},
    check=check,
)
