"""Cubic Resize with another kernel than PyTorch's."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_INTERPOLATE, operator
from calib.core.lint.subject import Subject, number

PYTORCH = -0.75


def check(subject: Subject) -> Iterator[Sighting]:
    """List each cubic Resize whose coefficient is not PyTorch's, or that leaves out what lies outside."""
    for resize in read_resizes(subject):
        if resize.mode != "cubic":
            continue
        coefficient, outside = number(resize.node, "cubic_coeff_a", PYTORCH), number(resize.node, "exclude_outside", 0)
        if abs(coefficient - PYTORCH) > 1e-6 or (outside and not resize.antialias):
            yield at(resize.node, f"cubic_coeff_a {coefficient:g}, exclude_outside {outside:g}")


RULE = Rule(
    id="resize-cubic",
    title="Cubic Resize with another kernel than PyTorch's",
    why=(
        "PyTorch's bicubic kernel has a = -0.75 and repeats the edge. TensorFlow's and Pillow's have -0.5, and "
        "exclude_outside renormalises at the border: edges sharpen differently, by up to several grey levels."
    ),
    remedy="set cubic_coeff_a to -0.75 and exclude_outside to 0 if the network was trained in PyTorch",
    sources=(operator("Resize"), TORCH_INTERPOLATE),
    levels=everywhere("note"),
    check=check,
)
