"""Resize nodes of one network with different conventions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from calib.core.lint.resize import Resize, read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_INTERPOLATE, issue, operator
from calib.core.lint.subject import Subject

SAME = {"pytorch_half_pixel": "half_pixel"}


def check(subject: Subject) -> Iterator[Sighting]:
    """List every interpolating Resize where conventions differ, the rarer ones; all of them with their settings."""
    found = [item for item in read_resizes(subject) if item.mode != "nearest" and _matters(item)]
    counts = Counter(SAME.get(item.coordinates, item.coordinates) for item in found)
    if len(counts) > 1:
        common = counts.most_common(1)[0]
        for resize in found:
            if SAME.get(resize.coordinates, resize.coordinates) != common[0]:
                yield at(resize.node, f"{resize.label}, where {common[1]} others have {common[0]}")


def _matters(resize: Resize) -> bool:
    """Leave out a map of one position, which every convention spreads alike."""
    return not resize.axes or any(axis.before != 1 for axis in resize.axes)


RULE = Rule(
    id="resize-mixed",
    title="Resize nodes of this network interpolate by different conventions",
    why=(
        "A network is rarely trained with align_corners=True in one place and False in another; one node that differs "
        "is often one that an exporter or an edit changed."
    ),
    remedy="compare with the training code, node by node",
    sources=(operator("Resize"), TORCH_INTERPOLATE, issue("NVIDIA/TensorRT", 273)),
    levels=everywhere("note"),
    check=check,
)
