"""Nodes that the operator set does not have."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.core.graph import Node
from calib.core.lint.rule import Levels, Rule, Sighting, at, levels
from calib.core.lint.sources import ONNX_VERSIONS, operator
from calib.core.lint.subject import Subject
from calib.core.lint.support import plugin_name

LENIENT = frozenset({"Upsample", "Scatter"})
"""Deprecated operators that TensorRT's parser takes at any opset."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes whose operator, attribute or number of inputs the declared opset does not have."""
    for node in subject.every_node:
        if not node.domain and not plugin_name(node.op_type):
            said, found = _said(node, subject.network.opset)
            if said:
                yield at(node, said, found)


def _said(node: Node, opset: int) -> tuple[str, Levels | None]:
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return _unknown(node.op_type, opset), None
    if schema.deprecated:
        lenient = levels(trt="warning", ort="error") if node.op_type in LENIENT else None
        return f"{node.op_type} was removed by opset {schema.since_version}", lenient
    foreign = [key for key in node.attributes if key not in schema.attributes]
    if foreign:
        return f"{node.op_type} of opset {opset} has no attribute {foreign[0]!r}", levels(trt="warning", ort="error")
    if len(node.inputs) > schema.max_input or len(node.outputs) > schema.max_output:
        counts = f"{len(node.inputs)} inputs and {len(node.outputs)} outputs"
        return f"{node.op_type} of opset {opset} takes fewer than {counts}", None
    return "", None


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
