"""Quantized squeeze-and-excitation gates."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import INTEGER_WHITEPAPER, TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject

PARTS = frozenset({"Conv", "Gemm", "MatMul", "Mul", "Sigmoid", "HardSigmoid"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List the nodes of gates whose inputs are dequantized."""
    if not subject.int8:
        return
    for index in sorted(subject.roles.gates):
        node = subject.original(index)
        if node is not None and node.op_type in PARTS and _quantized(node, subject):
            yield at(node, f"{node.op_type} of a gate")


def _quantized(node: Node, subject: Subject) -> bool:
    """Tell whether the node reads quantized values: a gating Mul on both sides, any other on its only one."""
    sides = [name for name in node.inputs[:2] if name in subject.activations]
    return bool(sides) and all(subject.from_dequantize(name) for name in sides)


RULE = Rule(
    id="qdq-gate",
    title="Squeeze-and-excitation gate runs in INT8",
    why=(
        "A gate works on one position per image: there is nothing to gain. Its output multiplies whole channels, so "
        "that one step of its range is an error of every pixel of them."
    ),
    remedy="keep the pool, the layers of the gate, its sigmoid and the multiplication in float (calib's default)",
    sources=(TRT_QUANTIZED, INTEGER_WHITEPAPER, issue("quic/aimet", 2474)),
    levels=everywhere("warning"),
    check=check,
)
