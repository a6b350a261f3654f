"""BatchNormalization behind quantized layers."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.norms import folded_after
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List BatchNormalization nodes behind layers whose weights are quantized."""
    for node in subject.nodes("Conv", "ConvTranspose", "Gemm"):
        weight = subject.weight_input(node)
        behind = folded_after(node, subject)
        if behind is not None and weight and subject.quantized_constant(weight) is not None:
            yield at(behind, f"behind {node.label}, whose weight is quantized")


RULE = Rule(
    id="qdq-batchnorm",
    title="BatchNormalization was not folded before the weights were quantized",
    why=(
        "The weights were rounded without its gain and can no longer absorb it: it runs as a scale of its own, and "
        "the scales per channel do not fit the folded weights. Public QAT exports ran about a fifth slower for it."
    ),
    remedy="fold BatchNormalization into the convolutions first, then place the pairs",
    sources=(TRT_QUANTIZED, issue("ultralytics/ultralytics", 26159), issue("NVIDIA/TensorRT", 4616)),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
