"""Inputs that are not float32."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import TRT_OPERATORS, TRT_QUANTIZED
from calib.core.lint.subject import Subject

PLAIN = frozenset({"float32", "float64"})
"""float64 has a rule of its own."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List inputs of another type than float32."""
    for item in subject.network.inputs:
        if item.elem_type is None:
            yield on(item.name, "its type is not stated")
        elif item.elem_type not in PLAIN:
            yield on(item.name, item.elem_type)


RULE = Rule(
    id="input-types",
    title="Input of another type than float32",
    why=(
        "Calibrators and most callers hand over float32 buffers: their bytes, read as another type, are garbage that "
        "still calibrates. A calibration cache has no range for an integer input, so that the layers that cast it "
        "stay in float."
    ),
    remedy=(
        "check the type of what every caller copies to the device; keep preprocessing to float32 outside if in doubt"
    ),
    sources=(TRT_OPERATORS, TRT_QUANTIZED),
    levels=levels(trt="note"),
    check=check,
)
