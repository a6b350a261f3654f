"""Operators outside of the standard."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Levels, Rule, Sighting, at, everywhere, levels
from calib.core.lint.sources import TRT_OPERATORS
from calib.core.lint.subject import Subject
from calib.core.lint.support import plugin_name

RUNTIME = frozenset({"com.microsoft", "com.microsoft.nchwc", "com.ms.internal.nhwc"})
"""ONNX Runtime's own domains: written by its optimizer, read by nobody else."""
QUANTIZERS = frozenset({"QuantizeLinear", "DequantizeLinear"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes of custom domains, and TensorRT's plugins under the standard one."""
    functions = {(function.domain, function.name) for function in subject.model.functions}
    for node in subject.every_node:
        domain = node.domain or ("TensorRT plugin" if plugin_name(node.op_type) else "")
        if domain and (node.domain, node.op_type) not in functions:
            yield at(node, f"{domain}::{node.op_type}", _levels(node.domain, node.op_type))


def _levels(domain: str, op_type: str) -> Levels:
    if plugin_name(op_type):
        return levels(ort="warning")
    if domain in RUNTIME:
        return levels(trt="error")
    return everywhere("warning")


RULE = Rule(
    id="custom-operator",
    title="Operator outside of the ONNX standard",
    why=(
        "TensorRT looks for a plugin of that name, ONNX Runtime for a registered custom operator; without it the "
        "network does not load. Nothing is known of its shapes, types and ranges: what it reads and makes stays in "
        "float. Operators of com.microsoft are what ONNX Runtime's optimizer wrote when it saved a model."
    ),
    remedy="start from the exporter's own file in place of one that a runtime optimized; or load the plugin it needs",
    sources=(TRT_OPERATORS, "https://onnxruntime.ai/docs/reference/operators/add-custom-op.html"),
    levels=everywhere("warning"),
    check=check,
)
