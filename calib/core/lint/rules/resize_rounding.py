"""Resize whose stated scale falls a hair short of the size that was meant."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import lost_row, read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize whose output loses a row or column to the rounding of its scale."""
    for resize in read_resizes(subject):
        for axis in resize.axes:
            lost = lost_row(axis)
            if lost is not None:
                said = f"axis {axis.index}: {axis.before} times {axis.scale:.8g} makes {lost[0]}, not {lost[1]}"
                yield at(resize.node, said)


RULE = Rule(
    id="resize-rounding",
    title="Resize loses a row or column to the rounding of its scale",
    why=(
        "By the ONNX specification the output length is floor(input * scale). A scale that is a ratio of two sizes "
        "rounded to float32 may fall a hair short, and every runtime then makes one row less."
    ),
    remedy="export with size= in place of scale_factor=, or give the node sizes instead of scales",
    sources=(operator("Resize"), issue("pytorch/pytorch", 96236)),
    levels=everywhere("warning"),
    check=check,
)
