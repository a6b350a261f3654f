"""Convolutions whose weights are computed."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each convolution whose weight is no constant of the file."""
    for node in subject.nodes("Conv", "ConvTranspose"):
        if node.input(1) and not subject.is_constant(node.input(1)):
            yield at(node, f"weight {node.input(1)!r} is computed as the network runs")


RULE = Rule(
    id="layer-weights",
    title="Convolution whose weight is computed as the network runs",
    why=(
        "Only constant weights have a scale per channel: TensorRT quantizes such a layer per tensor or not at all, "
        "and BatchNormalization cannot be folded into it."
    ),
    remedy="fold what makes the weight at export (weight normalisation, reparameterisation: fuse it before the export)",
    sources=(operator("Conv"), TRT_QUANTIZED),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
