"""Antialiased Resize."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import read_resizes
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TORCH_INTERPOLATE, TRT_OPERATORS, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize that filters while it shrinks."""
    for resize in read_resizes(subject):
        if resize.antialias:
            yield at(resize.node, f"{resize.label}, antialias")


RULE = Rule(
    id="resize-antialias",
    title="Resize with antialias, which TensorRT's parser refuses",
    why="antialias=1 (interpolate with antialias=True) widens the filter while shrinking; TensorRT has no such filter.",
    remedy="resize before the network, in the preprocessing; or train and export without antialias",
    sources=(operator("Resize"), TORCH_INTERPOLATE, TRT_OPERATORS),
    levels=levels(trt="error"),
    check=check,
)
