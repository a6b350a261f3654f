"""Zero points that are not zero."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.quantizers import Quantizer
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS, TRT_QUANTIZED
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q and DQ with a zero point that is not 0, or not constant."""
    for item in subject.quantizers:
        said = _said(item, subject)
        if said:
            yield at(item.node, said)


def _said(item: Quantizer, subject: Subject) -> str:
    if not item.zero_given or (item.integers or "").startswith("float"):
        return ""
    if item.zero is None:
        return "" if subject.is_constant(item.node.input(2)) else f"{item.node.input(2)!r} is computed"
    wrong = np.flatnonzero(item.zero.astype(np.float64))
    if not wrong.size:
        return ""
    first = f"zero point {item.zero.ravel()[wrong[0]]}"
    return first if item.zero.size == 1 else f"{wrong.size} of {item.zero.size} are not 0, the first is {first}"


RULE = Rule(
    id="qdq-zero-point",
    title="Zero point that is not a constant 0",
    why="TensorRT quantizes symmetrically: the parser refuses any zero point but a constant 0.",
    remedy="quantize again with symmetric ranges (ActivationSymmetric=True, WeightSymmetric=True)",
    sources=(TRT_QUANTIZED, TRT_OPERATORS),
    levels=levels(trt="error"),
    check=check,
)
