"""Quantized outputs."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, everywhere, on
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List float outputs of the network that come out of a Q/DQ pair."""
    for item in subject.network.outputs:
        if item.name in subject.activations and subject.from_dequantize(item.name):
            yield on(item.name, "comes out of a Q/DQ pair")


RULE = Rule(
    id="qdq-output",
    title="Output of the network behind Q/DQ",
    why=(
        "The class scores are rounded to 255 levels: scores tie, and the first class of a tie wins, pixel by pixel "
        "along every border. Nothing is gained: no INT8 layer reads them."
    ),
    remedy="quantize no outputs",
    sources=(TRT_QUANTIZED,),
    levels=everywhere("warning"),
    check=check,
)
