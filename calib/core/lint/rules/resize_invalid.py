"""Resize to no size."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.resize import stated
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import operator
from calib.core.lint.subject import Subject, ints


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize whose scales or sizes are not positive numbers, are too few, or are stated twice."""
    for node in subject.nodes("Resize", "Upsample"):
        said = _said(node, subject)
        if said:
            yield at(node, said)


def _said(node: Node, subject: Subject) -> str:
    _, scales, _, sizes = found = stated(node, subject)
    for name, numbers in (found[:2], found[2:]):
        wrong = [item for item in numbers if not (math.isfinite(item) and item > 0)]
        if wrong:
            return f"{name} with {wrong[0]:g}"
    if scales and sizes:
        return "both scales and sizes"
    shape, axes = subject.network.shapes.get(node.input(0)), ints(node, "axes")
    given = scales or sizes
    wanted = len(axes) if axes else None if shape is None else len(shape)
    return f"{len(given)} numbers for {wanted} axes" if given and wanted not in {None, len(given)} else ""


RULE = Rule(
    id="resize-invalid",
    title="Resize whose scales or sizes cannot be",
    why=(
        "The specification wants scales above zero or sizes of at least 1, one an axis, and not both. A zero comes "
        "from a size that was divided at export; runtimes refuse the node, or make an empty map."
    ),
    remedy="export at the size the network is used at",
    sources=(operator("Resize"),),
    levels=everywhere("error"),
    check=check,
)
