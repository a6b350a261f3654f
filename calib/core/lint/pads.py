"""Padding nodes: their amounts by axis."""

from __future__ import annotations

from calib.core.graph import Node
from calib.core.lint.subject import Subject, ints


def amounts(node: Node, subject: Subject) -> dict[int, tuple[int, int]] | None:
    """Read what a Pad adds before and after each axis; None where it is not constant."""
    old = subject.network.opset < 11
    stated = ints(node, "pads") if old else subject.integers(node.input(1))
    if stated is None:
        return None
    pads = list(stated)
    axes = _axes(node, subject, len(pads) // 2)
    half = len(pads) // 2
    return None if axes is None else {axis: (pads[i], pads[i + half]) for i, axis in enumerate(axes)}


def _axes(node: Node, subject: Subject, count: int) -> list[int] | None:
    if not node.input(3):
        return list(range(count))
    shape, named = subject.network.shapes.get(node.input(0)), subject.integers(node.input(3))
    if shape is None or named is None or len(named) != count:
        return None
    return [axis % len(shape) for axis in named]
