"""Reflection wider than what it reflects."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.pads import amounts
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import operator
from calib.core.lint.subject import Subject, text


def check(subject: Subject) -> Iterator[Sighting]:
    """List each reflecting Pad that adds as much as its axis is long, or more."""
    for node in subject.nodes("Pad"):
        if text(node, "mode", "constant") != "reflect":
            continue
        for axis, sides in (amounts(node, subject) or {}).items():
            length = subject.length(node.input(0), axis)
            if length is not None and max(sides) >= length:
                yield at(node, f"axis {axis} has length {length} and is padded by {sides[0]} and {sides[1]}")


RULE = Rule(
    id="pad-reflect-width",
    title="Reflecting Pad is as wide as the axis it reflects, or wider",
    why=(
        "A reflection without its edge has length - 1 pixels to give. PyTorch and ONNX Runtime refuse more; the ONNX "
        "reference evaluator goes on bouncing between the edges, other runtimes read out of bounds."
    ),
    remedy="feed larger images, pad less, or use mode edge",
    sources=(operator("Pad"), "https://docs.pytorch.org/docs/stable/generated/torch.nn.ReflectionPad2d.html"),
    levels=everywhere("error"),
    check=check,
)
