"""Kernels, strides and dilations that are no window."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.geometry import WINDOWS, Window, window
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List windows with a size of 0 or too few numbers, and windows larger than the padded map."""
    for node in subject.nodes(*WINDOWS):
        found = window(node, subject)
        said = (
            (found.faults[0] if found.faults else "")
            or _zero(found)
            or (_too_large(found) if node.op_type != "ConvTranspose" else "")
        )
        if said:
            yield at(node, said)


def _zero(found: Window) -> str:
    for what, sizes in (("kernel", found.kernel), ("stride", found.stride), ("dilation", found.dilation)):
        if any(size < 1 for size in sizes):
            return f"{what} {'x'.join(map(str, sizes))}"
    return ""


def _too_large(found: Window) -> str:
    if found.auto_pad.startswith("SAME"):
        return ""
    for size, extent in zip(found.padded, found.extent, strict=False):
        if size is not None and extent > size:
            return f"a window of {extent} on a padded map of {size}"
    return ""


RULE = Rule(
    id="window-invalid",
    title="Window that is empty, or larger than the map it runs over",
    why=(
        "A kernel, stride or dilation of 0 comes from a size that was divided at export (a pyramid pool finer than "
        "its map): runtimes crash on it or divide by zero when they load. A window larger than the padded map has no "
        "output."
    ),
    remedy="export at the size the network is used at, or with fewer pyramid cells than the map has pixels",
    sources=(operator("AveragePool"), operator("Conv"), issue("open-mmlab/mmsegmentation", 1253)),
    levels=everywhere("error"),
    check=check,
)
