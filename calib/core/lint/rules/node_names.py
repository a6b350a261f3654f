"""Nodes that share a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, levels
from calib.core.lint.sources import ONNX_IR
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List names that several nodes have."""
    counts = Counter(node.name for node in subject.network.nodes if node.name)
    for name, count in counts.items():
        if count > 1:
            yield Sighting(name, f"{count} nodes")


RULE = Rule(
    id="node-names",
    title="Nodes share a name",
    why=(
        "Layer precisions, float layers and profiles are given by node name: a name that two nodes have means both, "
        "or the first. TensorRT renames one of them, and reports no longer say which."
    ),
    remedy="give each node its own name before it is named anywhere",
    sources=(ONNX_IR,),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
