"""Resize to a size that was frozen at export."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from calib.core.lint.resize import Resize, read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_EXPORT, issue, operator
from calib.core.lint.subject import Subject

SIMPLE = 8
"""Scales that are fractions with a denominator up to this were meant, and those of two decimals."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize with a constant size, or the ratio of two sizes, in a network that takes any size."""
    if not subject.dynamic_size:
        return
    for resize in read_resizes(subject):
        said = _sizes(resize) or _scales(resize)
        if said:
            yield at(resize.node, said)


def _sizes(resize: Resize) -> str:
    frozen = [axis for axis in resize.axes if axis.before is None and axis.after is not None]
    if resize.by != "sizes" or not frozen:
        return ""
    return f"always makes {'x'.join(str(axis.after) for axis in frozen)}"


def _scales(resize: Resize) -> str:
    odd = [axis.scale for axis in resize.axes if axis.before is None and axis.scale is not None and _odd(axis.scale)]
    return f"scale {odd[0]:.8g} is the ratio of two sizes of one export" if odd else ""


def _odd(scale: float) -> bool:
    """Tell whether a scale is neither a simple fraction, nor one over another, nor a number of two decimals."""
    if scale <= 0:
        return False
    straight, inverse = (Fraction(value).limit_denominator(SIMPLE) for value in (scale, 1 / scale))
    meant = (round(scale, 2), float(straight), 1 / float(inverse) if inverse else 0.0)
    return all(abs(value - scale) > 1e-6 * scale for value in meant)


RULE = Rule(
    id="resize-frozen",
    title="Resize makes the size of the image that the network was exported with",
    why=(
        "The network declares inputs of any size, but this size is a constant of the file: at another input size maps "
        "no longer fit where they meet, or the output keeps the size of the export."
    ),
    remedy=(
        "export with dynamic height and width (dynamic_shapes, or dynamic_axes), or with a fixed input size; then run "
        "it at two sizes"
    ),
    sources=(operator("Resize"), TORCH_EXPORT, issue("pytorch/pytorch", 27176), issue("pytorch/pytorch", 82811)),
    levels=everywhere("warning"),
    check=check,
)
