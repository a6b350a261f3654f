"""Resize whose stated scale is a hair from another output size."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import read_resizes, rows
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize whose output gains or loses a row or column by the arithmetic that multiplies its scale."""
    for resize in read_resizes(subject):
        for axis in resize.axes:
            made = rows(axis)
            if made is not None and axis.scale is not None:
                sizes = f"{made.exact} by the specification, {made.single} in float32, {made.double} in PyTorch"
                yield at(resize.node, f"axis {axis.index}: {axis.before} times {axis.scale:.8g} makes {sizes}")


RULE = Rule(
    id="resize-rounding",
    title="Resize makes a row more or less, depending on who multiplies its scale",
    why=(
        "By the ONNX specification the output length is floor(input * scale). A scale that is the rounded ratio of "
        "two sizes lies a hair from a whole number of rows: exact arithmetic (right by the specification, and what "
        "shape inference says), a runtime's float32 product and PyTorch's float64 one then round to different sizes."
    ),
    remedy="export with size= in place of scale_factor=, or give the node sizes instead of scales",
    sources=(operator("Resize"), issue("pytorch/pytorch", 96236)),
    levels=everywhere("warning"),
    check=check,
)
