"""Numbers of scales that fit no axis."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.quantizers import Quantizer
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ whose scales, or zero points, do not match the axis it names."""
    for item in subject.quantizers:
        said = _scales(item) or _zeros(item)
        if said:
            yield at(item.node, said)


def _scales(item: Quantizer) -> str:
    if item.scale is None or not item.per_channel or item.scale.ndim != 1 or item.axis is None or item.shape is None:
        return ""
    axis = item.axis_of(1)
    if axis is None:
        return f"axis {item.axis} of a tensor with {len(item.shape)} axes"
    length = item.shape[axis]
    return "" if length in {None, item.scale.size} else f"{item.scale.size} scales for {length} channels of axis {axis}"


def _zeros(item: Quantizer) -> str:
    if item.scale is None or item.zero is None or item.zero.size == item.scale.size:
        return ""
    return f"{item.zero.size} zero points for {item.scale.size} scales"


RULE = Rule(
    id="qdq-scale-count",
    title="Scales that do not match the axis they belong to",
    why=(
        "The specification wants one scale, or one per index of the axis, and as many zero points: the model is "
        "invalid."
    ),
    remedy="write the pair again; a transposed weight needs its axis transposed with it",
    sources=(operator("QuantizeLinear"), TRT_QUANTIZED, "https://github.com/microsoft/onnxruntime/issues/12800"),
    levels=everywhere("error"),
    check=check,
)
