"""Outputs whose size depends on values."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS, TRT_SHAPES, operator
from calib.core.lint.subject import Subject

OPERATORS = ("NonZero", "NonMaxSuppression", "Unique", "Compress")


def check(subject: Subject) -> Iterator[Sighting]:
    """List each node whose output size depends on the values of its input."""
    for node in subject.nodes(*OPERATORS):
        if any(not subject.is_constant(name) for name in node.outputs if name):
            yield at(node, node.op_type)


RULE = Rule(
    id="data-dependent",
    title="The size of a tensor depends on values",
    why=(
        "TensorRT must allocate for the worst case and synchronise with the host to learn the size; layers behind it "
        "are neither fused nor calibrated at one shape."
    ),
    remedy="move it behind the network, into post-processing; boolean indexing in the model's code can become a Where",
    sources=(operator("NonZero"), TRT_OPERATORS, TRT_SHAPES),
    levels=levels(trt="warning"),
    check=check,
)
