"""Pools whose kernel is the size of the map at export."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.geometry import POOLS, Window, window
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_ADAPTIVE_POOL, issue
from calib.core.lint.subject import Subject

LARGE = 4
"""Kernels from this size on that tile the map are taken for adaptive pools that were frozen."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List pools that cover the whole map, or tile it in a network that takes any size.

    With a fixed input size they are right, and only say that the network is good for this size alone.
    """
    for node in subject.nodes(*POOLS):
        found = window(node, subject)
        said = _said(found)
        if said:
            yield at(node, said, everywhere("warning" if subject.dynamic_size else "note"))


def _said(found: Window) -> str:
    kernel = "x".join(map(str, found.kernel))
    if not found.kernel or max(found.kernel) < 2 or any(found.pads):
        return ""
    known = len(found.before) == len(found.kernel) and None not in found.before
    if known and tuple(found.before) == found.kernel:
        return f"kernel {kernel} is the whole map"
    tiles = found.stride == found.kernel and (max(found.kernel) >= LARGE or len(set(found.kernel)) > 1)
    return f"kernel and stride {kernel} tile the map of the export" if tiles else ""


RULE = Rule(
    id="pool-frozen",
    title="Pool whose kernel was frozen at the size of the export",
    why=(
        "Exporters write adaptive pooling, and pooling by x.shape, with the kernel that fits the exported size. At "
        "another input size the kernel stays: a global pool becomes a local one, a pyramid gets other cells."
    ),
    remedy=(
        "run the network at the exported size only, or replace AdaptiveAvgPool2d(1) by a mean over height and width, "
        "and pyramid pools by average pool and resize with sizes computed from the input"
    ),
    sources=(TORCH_ADAPTIVE_POOL, issue("pytorch/pytorch", 39323)),
    levels=everywhere("note"),
    check=check,
)
