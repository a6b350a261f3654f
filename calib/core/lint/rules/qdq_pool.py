"""Pairs before what does not commute with them."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject
from calib.core.roles import COMPUTE

OPERATORS = ("AveragePool", "GlobalAveragePool", "LpPool", "Resize", "Upsample")


def check(subject: Subject) -> Iterator[Sighting]:
    """List averages and resizes that read a pair and feed a layer without one."""
    if not subject.int8:
        return
    for node in subject.nodes(*OPERATORS):
        fed = _layer_behind(node, subject)
        if fed is not None and subject.from_dequantize(node.input(0)):
            yield at(node, f"{node.op_type} before {fed.label}")


def _layer_behind(node: Node, subject: Subject) -> Node | None:
    """Find a layer with a quantized weight that reads the node's output straight."""
    for use in subject.network.consumers.get(node.outputs[0], ()):
        layer = subject.network.nodes[use.node]
        weight = subject.weight_input(layer) if layer.op_type in COMPUTE else ""
        if weight and subject.quantized_constant(weight) is not None:
            return layer
    return None


RULE = Rule(
    id="qdq-pool",
    title="Average or resize between a pair and the layer that needs it",
    why=(
        "MaxPool and moves of data commute with Q/DQ; averages and interpolation make new values: the pair before "
        "them does not serve the layer behind, which runs in float."
    ),
    remedy="put the pair behind it, right before the layer (Resize, then Q/DQ, then Conv)",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 2976)),
    levels=levels(trt="warning"),
    check=check,
)
