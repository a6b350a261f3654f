"""Nodes without a name."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, levels, whole
from calib.core.lint.sources import ONNX_IR
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """Report how many nodes that compute have no name."""
    nodes = [node for node in subject.network.nodes if node.op_type != "Constant"]
    nameless = [node for node in nodes if not node.name]
    if nameless:
        yield whole(f"{len(nameless)} of {len(nodes)} nodes, the first is {nameless[0].label}")


RULE = Rule(
    id="node-unnamed",
    title="Nodes have no name",
    why=(
        "TensorRT makes names up ((Unnamed Layer* 12) [Convolution]) that change with its version and the graph; "
        "layer precisions and reports then cannot be carried over. calib names such nodes by operator and output."
    ),
    remedy="name the nodes, or export with a newer exporter",
    sources=(ONNX_IR,),
    levels=levels(trt="note"),
    check=check,
)
