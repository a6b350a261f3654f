"""Quantized softmax and normalisations."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.follow import FIXED_REASONS
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject

OPERATORS = tuple(name for name, reason in FIXED_REASONS.items() if reason in {"softmax", "normalisation"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List each softmax and normalisation that reads quantized values."""
    for node in subject.nodes(*OPERATORS):
        if node.input(0) in subject.activations and subject.from_dequantize(node.input(0)):
            yield at(node, node.op_type)


RULE = Rule(
    id="qdq-normalisation",
    title="Softmax or normalisation reads quantized values",
    why=(
        "Exponentials and variances need more than 8 bits: an error of half a step in the input multiplies the output "
        "by exp(scale / 2). TensorRT computes them in float anyway."
    ),
    remedy="place the pair behind it, before the next layer",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 4084)),
    levels=everywhere("warning"),
    check=check,
)
