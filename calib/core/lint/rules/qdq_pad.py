"""Pads between a pair and its layer."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject
from calib.core.roles import pad_keeps_range


def check(subject: Subject) -> Iterator[Sighting]:
    """List pairs right behind a Pad that could stand before it."""
    for item in subject.quantizers:
        maker = subject.network.producer(item.node.input(0))
        if item.quantizes and maker is not None and pad_keeps_range(maker, subject.network):
            yield at(maker, f"before the pair {item.node.label}")


RULE = Rule(
    id="qdq-pad",
    title="Pad stands outside of the pair, between the layer before and Q/DQ",
    why=(
        "TensorRT moves a Pad into the convolution behind it only if no Q/DQ stands between: here the Pad runs on "
        "floats, as a kernel of its own, and blocks the fusion of the layer before it with the pair."
    ),
    remedy="put the pair before the Pad, so that Pad and convolution are neighbours",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 2592), issue("NVIDIA/TensorRT", 1602)),
    levels=levels(trt="warning"),
    check=check,
)
