"""pytorch_half_pixel towards a single pixel."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_INTERPOLATE, issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize with pytorch_half_pixel whose output has length 1 along an axis that was longer."""
    for resize in read_resizes(subject):
        axes = [axis for axis in resize.axes if axis.after == 1 and (axis.before is None or axis.before > 1)]
        if resize.coordinates == "pytorch_half_pixel" and axes:
            said = ", ".join(f"axis {axis.index}: {axis.before or 'dynamic'} to 1" for axis in axes)
            yield at(resize.node, f"{resize.label}, {said}")


RULE = Rule(
    id="resize-single-pixel",
    title="Resize to a single pixel takes the corner, where PyTorch takes the centre",
    why=(
        "By the ONNX specification pytorch_half_pixel samples position 0 where the output has length 1. PyTorch "
        "itself samples the centre: a ramp of 10x10 gives 0 instead of 49.5. The runtimes are right, the exporter "
        "that wrote this mode is not."
    ),
    remedy="write half_pixel in its place: it is the same for longer outputs; or replace the node by a mean",
    sources=(operator("Resize"), TORCH_INTERPOLATE, issue("pytorch/pytorch", 183523)),
    levels=everywhere("warning"),
    check=check,
)
