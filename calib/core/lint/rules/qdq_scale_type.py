"""Scales whose type does not fit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.quantizers import Quantizer
from calib.core.lint.rule import Levels, Rule, Sighting, at, everywhere, levels
from calib.core.lint.sources import FLOAT16, TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject

HALF = frozenset({"float16", "bfloat16"})
FIRST = 19
"""Opset that brought scales of half precision."""
OWN_TYPE = 23
"""Opset from which a scale may have another type than its input."""
SMALLEST = 2.0**-14


def check(subject: Subject) -> Iterator[Sighting]:
    """List scales of half precision below opset 19, of another type than their input, or too small for float16."""
    for item in subject.quantizers:
        said, found = _said(item, subject)
        if said:
            yield at(item.node, said, found)


def _said(item: Quantizer, subject: Subject) -> tuple[str, Levels | None]:
    scale = subject.network.elem_types.get(item.node.input(1))
    data = subject.network.elem_types.get(item.node.input(0)) if item.quantizes else None
    standard = not item.node.domain
    if standard and scale in HALF and subject.network.opset < FIRST:
        return f"{scale} scale at opset {subject.network.opset}", everywhere("error")
    if standard and scale is not None and data is not None and data.startswith(("float", "bfloat")) and scale != data:
        mixed: Levels = {"trt10": "warning", "trt11": "error"}
        if subject.network.opset < OWN_TYPE:
            mixed = {**mixed, "ort": "error"}
        return f"{scale} scale on a {data} tensor", mixed
    values = None if item.scale is None else np.asarray(item.scale, np.float64)
    if scale == "float16" and values is not None and values.size and 0 < values.min() < SMALLEST:
        return f"float16 scale {values.min():.3g}, which keeps few digits", levels(trt="warning", ort="warning")
    return "", None


RULE = Rule(
    id="qdq-scale-type",
    title="Scale of a type that does not fit",
    why=(
        "Scales of half precision need opset 19. TensorRT 11 networks, and strongly typed ones of 10, want the scale "
        "of a QuantizeLinear in its input's type; the specification up to opset 22 does too. float16 loses digits "
        "below 6.1e-5."
    ),
    remedy="raise the opset to 19 with a converter, and cast the scale with the tensor (calib's FP16 cast does both)",
    sources=(operator("QuantizeLinear"), TRT_QUANTIZED, FLOAT16),
    levels=everywhere("error"),
    check=check,
)
