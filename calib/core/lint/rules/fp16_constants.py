"""Constants that float16 cannot hold."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import Node
from calib.core.graph.constants import SHAPE_SLOTS
from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import FLOAT16, issue
from calib.core.lint.subject import Subject

LARGEST = 65504.0
SMALLEST = 2.0**-25
"""What is below rounds to zero in float16."""
BOUNDS = frozenset({"Clip", "QuantizeLinear", "DequantizeLinear", "BatchNormalization"})
"""Operators whose large constants only bound values, are another rule's, or stay in float32."""
GUARDS = frozenset({"Add", "Max", "Clip", "Sub"})
"""Operators that keep a divisor, a root or a logarithm away from zero by a small constant."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List constants that overflow float16, and guards against division by zero that vanish in it."""
    for node in subject.nodes():
        if not any(name in subject.activations for name in node.outputs):
            continue
        for slot, name in enumerate(node.inputs):
            if name in subject.network.constants and slot not in SHAPE_SLOTS.get(node.op_type, ()):
                value = subject.value(name)
                said = _said(node, value) if value is not None and _wide(value) else ""
                if said:
                    yield on(name, f"{said} in {node.label}")


def _wide(value: NDArray[Any]) -> bool:
    return value.dtype.name in {"float32", "float64", "bfloat16"} and value.size > 0


def _said(node: Node, value: NDArray[Any]) -> str:
    magnitudes = np.abs(value.astype(np.float64))
    finite = magnitudes[np.isfinite(magnitudes)]
    if not finite.size:
        return ""
    largest = float(finite.max())
    if largest > LARGEST and node.op_type not in BOUNDS:
        return f"{largest:.4g} becomes infinite"
    if value.size == 1 and node.op_type in GUARDS and 0 < largest < SMALLEST:
        return f"{largest:.3g} becomes 0"
    return ""


RULE = Rule(
    id="fp16-constants",
    title="Constant that float16 cannot hold",
    why=(
        "float16 ends at 65504: a larger constant (a mask of -1e9, a folded scale) becomes infinite, and infinity "
        "minus infinity is NaN. It begins at 6e-8: a smaller epsilon becomes 0, and the division it guards fails."
    ),
    remedy="use a mask of -1e4 and an epsilon of at least 1e-6, or keep these nodes in float32",
    sources=(FLOAT16, issue("NVIDIA/TensorRT", 1122)),
    levels=levels(trt="warning"),
    check=check,
)
