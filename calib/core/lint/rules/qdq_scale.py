"""Scales that are no scales."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.quantizers import Quantizer
from calib.core.lint.rule import Rule, Sighting, at, everywhere, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ with a scale that is zero, negative, infinite or NaN, or that is not constant."""
    for item in subject.quantizers:
        if item.scale is None:
            if not subject.is_constant(item.node.input(1)):
                yield at(
                    item.node, f"scale {item.node.input(1)!r} is computed as the network runs", levels(trt="warning")
                )
            continue
        said = _said(item)
        if said:
            yield at(item.node, said)


def _said(item: Quantizer) -> str:
    scale = np.asarray(item.scale, np.float64).ravel()
    wrong = np.flatnonzero(~(np.isfinite(scale) & (scale > 0)))
    if not wrong.size:
        return ""
    first = f"scale {scale[wrong[0]]:g}"
    return first if scale.size == 1 else f"{wrong.size} of {scale.size} scales, the first is {first}"


RULE = Rule(
    id="qdq-scale",
    title="Scale that is not finite and above zero",
    why=(
        "A scale of 0 divides by zero: it comes from a dead channel or a tensor that was constant in calibration. "
        "TensorRT's parser refuses the model, ONNX Runtime makes the tensor zero. Negative, infinite and NaN scales "
        "come from damaged calibration."
    ),
    remedy="give dead channels a floor (calib does, and lists them); calibrate again where scales are not finite",
    sources=(TRT_QUANTIZED, operator("QuantizeLinear"), issue("NVIDIA/TensorRT", 1826), issue("NVIDIA/TensorRT", 2267)),
    levels=everywhere("error"),
    check=check,
)
