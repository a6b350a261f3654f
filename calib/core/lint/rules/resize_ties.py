"""Nearest Resize whose positions fall on rounding boundaries."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import Resize, exact_ratio, nearest, read_resizes, undecided
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each nearest Resize with outputs that float32 rounding decides."""
    for resize in read_resizes(subject):
        if resize.mode == "nearest":
            said = [item for item in _axes(resize) if item]
            if said:
                yield at(resize.node, f"{resize.label}; " + "; ".join(said))


def _axes(resize: Resize) -> Iterator[str]:
    for axis in resize.axes:
        if not axis.before or not axis.after:
            continue
        ratio = exact_ratio(axis, axis.before, axis.after)
        open_ = undecided(resize, axis.before, axis.after, ratio)
        exact = nearest(resize.coordinates, resize.rounding, axis.before, axis.after, ratio)
        if open_ and exact is not None:
            example = f"output {open_[0]} is source {exact[open_[0]]} by the specification"
            yield f"axis {axis.index}, {axis.before} to {axis.after}: {len(open_)} on a boundary, {example}"


RULE = Rule(
    id="resize-ties",
    title="Nearest Resize has outputs on a rounding boundary, where runtimes pick different neighbours",
    why=(
        "Some output pixels lie exactly between two source pixels, or exactly on one, at a scale that float32 cannot "
        "hold. By the ONNX specification, in exact arithmetic, the choice is clear; a runtime that computes in "
        "float32 may take the neighbour beside it. That is backend rounding: off by one pixel in a counted few "
        "places, no loss by quantization."
    ),
    remedy="compare against two oracles before blaming INT8; resize by an integer factor where pixels must match",
    sources=(operator("Resize"), issue("microsoft/onnxruntime", 28291), issue("onnx/onnx", 3816)),
    levels=everywhere("note"),
    check=check,
)
