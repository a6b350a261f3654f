"""Loops and branches."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each If, Loop and Scan whose result meets the network's data."""
    for node in subject.nodes("If", "Loop", "Scan"):
        if any(not subject.is_constant(name) for name in node.outputs if name):
            yield at(node, f"{node.op_type}, {len(node.captured)} captured tensors")


RULE = Rule(
    id="control-flow",
    title="Control flow in the network",
    why=(
        "Tensors inside subgraphs are not calibrated and stay in float; TensorRT builds a branch as a network of its "
        "own, across which nothing fuses. Exporters often write an If for a shape test that is decided at export."
    ),
    remedy="fold constants and shapes (onnxsim, polygraphy surgeon sanitize), or remove the test from the model's code",
    sources=(operator("If"), TRT_OPERATORS),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
