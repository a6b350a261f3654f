"""Resize settings that TensorRT's parser refuses."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import Resize, read_resizes
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS, operator
from calib.core.lint.subject import Subject

COORDINATES = frozenset({"half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn", "asymmetric", "align_corners"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize with a setting that no TensorRT parser takes."""
    for resize in read_resizes(subject):
        said = _refused(resize)
        if said:
            yield at(resize.node, said)


def _refused(resize: Resize) -> str:
    if resize.coordinates not in COORDINATES:
        return f"coordinate_transformation_mode {resize.coordinates}"
    if resize.coordinates == "tf_half_pixel_for_nn" and resize.rounding != "round_prefer_floor":
        return f"tf_half_pixel_for_nn with {resize.rounding}"
    if resize.policy != "stretch" and resize.by.endswith("sizes"):
        return f"keep_aspect_ratio_policy {resize.policy}"
    return ""


RULE = Rule(
    id="resize-unsupported",
    title="Resize with a setting that TensorRT's parser refuses",
    why="TensorRT's Resize knows neither cropping, symmetric half pixels nor aspect ratio policies.",
    remedy="export with half_pixel or align_corners, and give the output size itself",
    sources=(operator("Resize"), TRT_OPERATORS),
    levels=levels(trt="error"),
    check=check,
)
