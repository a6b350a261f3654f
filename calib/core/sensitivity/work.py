"""Work of nodes: multiply-accumulates from shapes, and an estimate of their time for cutting a network well."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from calib.core.graph import Network, Node

Shapes = Mapping[str, Sequence[int]]
RATES: Mapping[str, float] = {"Resize": 3.0, "Upsample": 3.0, "GridSample": 6.0, "Softmax": 3.0, "LogSoftmax": 3.0}
"""Nanoseconds an element made, of slow operators; orders of magnitude on one core of a current CPU."""
SLOW = frozenset({"Sigmoid", "Tanh", "Erf", "Exp", "Log", "Pow", "Gelu", "Mish", "Softplus", "HardSwish"})
MACS_A_NANOSECOND = 50.0
NANOSECONDS_AN_ELEMENT = 0.6
NANOSECONDS_A_NODE = 8_000.0


def macs(node: Node, shapes: Shapes) -> int:
    """Multiply-accumulates of a node; 0 for an operator without, or where shapes are not known.

    A convolution makes each output element from ``C_in / group`` channels of its kernel; a transposed one spreads each
    input element over ``C_out / group`` channels; a product sums over the axis that its operands share.
    """
    if node.domain or not node.outputs:
        return 0
    first, second, made = (shapes.get(name) for name in (node.input(0), node.input(1), node.outputs[0]))
    if first is None or second is None or made is None:
        return 0
    if node.op_type == "ConvTranspose":
        return math.prod(first) * math.prod(second[1:])
    return math.prod(made) * _summed(node, first, second)


def _summed(node: Node, first: Sequence[int], second: Sequence[int]) -> int:
    """How many products are summed for an element of a node's output."""
    if node.op_type == "Conv":
        return math.prod(second[1:])
    if node.op_type == "MatMul" and first:
        return first[-1]
    if node.op_type == "Gemm" and len(first) == 2:
        return first[0 if node.attributes.get("transA") else 1]
    return 0


def nanoseconds(node: Node, network: Network, shapes: Shapes) -> float:
    """Estimate of a node's time on one core. It decides where a network is cut, never what is computed."""
    touched = [name for name in (*node.inputs, *node.outputs) if name and name not in network.constants]
    moved = sum(math.prod(shapes[name]) for name in touched if name in shapes)
    made = sum(math.prod(shapes[name]) for name in node.outputs if name in shapes)
    extra = RATES.get(node.op_type, 1.5 if node.op_type in SLOW else 0.0)
    return NANOSECONDS_A_NODE + macs(node, shapes) / MACS_A_NANOSECOND + moved * NANOSECONDS_AN_ELEMENT + made * extra
