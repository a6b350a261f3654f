"""Layers whose weights do not fit the channels they get."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import operator
from calib.core.lint.subject import Subject, number


def check(subject: Subject) -> Iterator[Sighting]:
    """List convolutions and normalisations whose parameters are for another number of channels than their input has."""
    for node in subject.nodes("Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization"):
        channels, wanted = subject.length(node.input(0), 1), _wanted(node, subject)
        if channels is not None and wanted is not None and channels != wanted:
            yield at(node, f"{channels} channels arrive, the parameters are for {wanted}")


def _wanted(node: Node, subject: Subject) -> int | None:
    shape = subject.network.shapes.get(node.input(1))
    if not shape:
        return None
    if node.op_type == "Conv":
        each = shape[1] if len(shape) > 1 else None
        return None if each is None else each * int(number(node, "group", 1))
    return shape[0]


RULE = Rule(
    id="layer-channels",
    title="Layer whose parameters are for another number of channels than its input has",
    why=(
        "The weight of a Conv is [out, in / group, …], that of a ConvTranspose [in, out / group, …]. Shape inference "
        "does not compare them with the input; runtimes refuse the node when they run it. A concatenation along the "
        "wrong axis, a dropped operator or a wrong group does this."
    ),
    remedy="look at what was edited before this node: the axis of a Concat, a Transpose, the group",
    sources=(operator("Conv"), operator("ConvTranspose")),
    levels=everywhere("error"),
    check=check,
)
