"""Nodes that the operator set does not have."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.core.graph import Node
from calib.core.graph.structure import all_graphs, read_nodes
from calib.core.lint.rule import Levels, Rule, Sighting, at, levels
from calib.core.lint.sources import ONNX_VERSIONS, operator
from calib.core.lint.subject import Subject
from calib.core.lint.support import plugin_name

LENIENT = frozenset({"Upsample", "Scatter"})
"""Deprecated operators that TensorRT's parser takes at any opset."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes whose operator, attributes or number of inputs the declared opset does not have."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = max(subject.model.ir_version, 3)
    context.opset_imports = dict(subject.network.opsets) or {"": 1}
    for graph in all_graphs(subject.model.graph):
        for node, proto in zip(read_nodes(graph), graph.node, strict=True):
            if not node.domain and not plugin_name(node.op_type):
                said, found = _said(node, proto, subject.network.opset, context)
                if said:
                    yield at(node, said, found)


def _said(
    node: Node, proto: onnx.NodeProto, opset: int, context: onnx.checker.C.CheckerContext
) -> tuple[str, Levels | None]:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return _unknown(node.op_type, opset), None
    if schema.deprecated:
        lenient = levels(trt="warning", ort="error") if node.op_type in LENIENT else None
        return f"{node.op_type} was removed by opset {schema.since_version}", lenient
    foreign = [item.name for item in proto.attribute if item.name not in schema.attributes]
    if foreign:
        return f"{node.op_type} of opset {opset} has no attribute {foreign[0]!r}", levels(trt="warning", ort="error")
    return _checked(proto, context), None


def _checked(proto: onnx.NodeProto, context: onnx.checker.C.CheckerContext) -> str:
    """Ask ONNX's checker for what is left: required attributes, their types, numbers of inputs and outputs."""
    if proto.op_type == "Constant" or any(item.HasField("g") or item.graphs for item in proto.attribute):
        return ""
    try:
        onnx.checker.check_node(proto, context)
    except onnx.checker.ValidationError as error:
        return next(iter(str(error).strip().splitlines()), "the checker refuses it")
    return ""


def _unknown(op_type: str, opset: int) -> str:
    if onnx.defs.has(op_type):
        first = onnx.defs.get_schema(op_type).since_version
        return f"{op_type} is no operator of opset {opset}; its present form came with {first}"
    return f"{op_type} is no ONNX operator"


RULE = Rule(
    id="onnx-schema",
    title="Node that the declared operator set does not have",
    why=(
        "The file declares one opset and uses another's operators or attributes, often after its number was edited. "
        "By the specification the model is invalid: ONNX Runtime refuses it, other runtimes may guess."
    ),
    remedy="export again at the opset that has them; raise the opset with onnx.version_converter, not by its number",
    sources=(ONNX_VERSIONS, operator("Resize")),
    levels=levels(trt="error", ort="error"),
    check=check,
)
