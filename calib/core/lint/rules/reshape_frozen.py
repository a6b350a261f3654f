"""Reshape to the sizes of the export."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_EXPORT, operator
from calib.core.lint.subject import Subject, number


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Reshape of an activation of open size to a shape without an open length."""
    for node in subject.nodes("Reshape") if subject.open else ():
        before = subject.network.shapes.get(node.input(0))
        target = subject.numbers(node.input(1))
        if node.input(0) not in subject.activations or before is None or target is None or None not in before:
            continue
        copies = 0 in target and not number(node, "allowzero", 0)
        if -1 not in target and not copies:
            yield at(node, f"to {'x'.join(f'{length:g}' for length in target)}")


RULE = Rule(
    id="reshape-frozen",
    title="Reshape to the sizes of the export in a network of open size",
    why="The input may have another batch or size, but this shape is a constant: any other input fails here.",
    remedy="export with dynamic shapes, and use -1 or x.shape in place of numbers in the network's code",
    sources=(operator("Reshape"), TORCH_EXPORT),
    levels=everywhere("warning"),
    check=check,
)
