"""Channels without weights."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.norms import channel_ranges
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject

MANY = 0.5


def check(subject: Subject) -> Iterator[Sighting]:
    """List layers with output channels whose weights are all but zero."""
    for item in channel_ranges(subject):
        dead = int(item.dead.sum())
        if dead:
            folded = ", with BatchNormalization folded in" if item.folded else ""
            found = everywhere("warning") if dead > MANY * item.amax.size else None
            yield at(item.node, f"{dead} of {item.amax.size} output channels{folded}", found)


RULE = Rule(
    id="dead-channels",
    title="Output channels whose weights are zero",
    why=(
        "Such a channel carries its bias alone. Its weight scale is amax / 127 = 0, which TensorRT's parser refuses "
        "in a Q/DQ model and which broke builds of implicit ones; a floor must stand in. Many of them mean a layer "
        "that training killed."
    ),
    remedy="let calib write the floor (it lists the channels), or prune them from the network",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 1826), issue("NVIDIA/TensorRT", 3020)),
    levels=everywhere("note"),
    check=check,
)
