"""Operators that TensorRT's parser does not know."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Levels, Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_CHANGELOG, TRT_OPERATORS
from calib.core.lint.subject import Subject
from calib.core.lint.support import BASE, plugin_name, since


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes of the standard domain that a TensorRT release lacks, those in subgraphs too."""
    for node in subject.every_node:
        if node.domain or plugin_name(node.op_type) or _folded(node, subject):
            continue
        said, found = _said(node, subject.network.opset)
        if found:
            yield at(node, said, found)


def _folded(node: Node, subject: Subject) -> bool:
    """Leave out what every builder folds: nodes on constants alone."""
    return bool(node.outputs) and all(subject.is_constant(name) for name in node.outputs if name)


def _said(node: Node, opset: int) -> tuple[str, Levels]:
    version = since(node.op_type, opset)
    if version is None:
        return node.op_type, levels(trt="error")
    text = f"{node.op_type} needs TensorRT {version[0]}.{version[1]}"
    if version[0] > 10:
        return text, {"trt10": "error"}
    return (text, {"trt10": "warning"}) if version > BASE else ("", {})


RULE = Rule(
    id="trt-operator",
    title="Operator that TensorRT's parser does not know",
    why=(
        "The parser looks for a plugin of that name, finds none, and refuses the network; an older 10.x lacks some of "
        "them."
    ),
    remedy="express it by other operators in the model's code, write a plugin, or move it out of the network",
    sources=(TRT_OPERATORS, TRT_CHANGELOG),
    levels=levels(trt="error"),
    check=check,
)
