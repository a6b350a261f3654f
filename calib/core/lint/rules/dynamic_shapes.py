"""Inputs of open shape."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import GraphTensor
from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import TRT_SHAPES
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each input with an axis of open length; a batch alone is a note."""
    for item in subject.network.inputs:
        said = _said(item)
        if said:
            more = item.shape is None or None in item.shape[1:]
            yield on(item.name, said, levels(trt="warning") if more else None)


def _said(item: GraphTensor) -> str:
    if item.shape is None:
        return "its rank is unknown"
    if None not in item.shape:
        return ""
    return "x".join("?" if length is None else str(length) for length in item.shape)


RULE = Rule(
    id="dynamic-shapes",
    title="Input of open shape: TensorRT needs an optimization profile",
    why=(
        "Without a profile the build fails, or trtexec takes 1 for every open axis. A calibration uses the profile's "
        "opt shape alone."
    ),
    remedy=(
        "name the shapes: `calib engine … --shapes NAME:MIN/OPT/MAX`, or trtexec --minShapes; or export with a fixed "
        "size"
    ),
    sources=(TRT_SHAPES,),
    levels=levels(trt="note"),
    check=check,
)
