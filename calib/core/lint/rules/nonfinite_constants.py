"""Weights that are no numbers."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.rule import Rule, Sighting, everywhere, on
from calib.core.lint.sources import FLOAT16, operator
from calib.core.lint.subject import Subject

WEIGHTED = frozenset(
    {"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization", "InstanceNormalization", "LayerNormalization"}
)
"""Operators in which an infinite constant is a fault; elsewhere it may be a mask or a bound."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List constants with NaN, and weights with infinities."""
    for node in subject.nodes():
        for name in node.inputs:
            if name not in subject.network.constants:
                continue
            value = subject.value(name)
            if value is None or value.dtype.kind != "f":
                continue
            nans, infinities = int(np.isnan(value).sum()), int(np.isinf(value).sum())
            if nans or (infinities and node.op_type in WEIGHTED):
                yield on(name, f"{nans} NaN, {infinities} infinite of {value.size} in {node.label}")


RULE = Rule(
    id="nonfinite-constants",
    title="Weights that are NaN or infinite",
    why="Training diverged, or a cast to float16 overflowed: every output that the weight reaches is NaN.",
    remedy="export from an earlier checkpoint, or from the float32 weights",
    sources=(FLOAT16, operator("Conv")),
    levels=everywhere("error"),
    check=check,
)
