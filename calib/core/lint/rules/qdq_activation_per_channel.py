"""Activations with a scale per channel."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ on an activation with more than one scale."""
    for item in subject.quantizers:
        if not item.constant and item.per_channel and item.scale is not None:
            yield at(item.node, f"{item.scale.size} scales on {item.node.input(0)!r}")


RULE = Rule(
    id="qdq-activation-per-channel",
    title="Activation with a scale per channel",
    why="TensorRT quantizes activations with one scale; scales per channel are for constant weights.",
    remedy="one scale for the tensor; balance its channels by equalization if they differ widely",
    sources=(TRT_QUANTIZED,),
    levels=levels(trt="error"),
    check=check,
)
