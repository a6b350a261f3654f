"""Which axis of a tensor holds its channels: seeded by operators that fix it, carried along by the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from calib.core.graph.network import Network, Node, Shape

SPATIAL = frozenset(
    {
        "Conv", "ConvTranspose", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "LRN",
        "GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "AveragePool", "MaxPool", "LpPool", "DepthToSpace",
        "SpaceToDepth", "DeformConv", "GridSample", "ConvInteger",
    }
)  # fmt: skip
"""Operators whose first input and output are ``N, C, spatial…`` by definition."""

KEEPS = frozenset(
    {
        "Abs", "Add", "Cast", "Ceil", "Celu", "Clip", "Concat", "CumSum", "DequantizeLinear", "Div", "Dropout", "Elu",
        "Erf", "Exp", "Expand", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log",
        "LogSoftmax", "LpNormalization", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "PRelu", "Pad", "Pow",
        "QuantizeLinear", "Reciprocal", "Relu", "Resize", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Slice", "Softmax",
        "Softplus", "Softsign", "Split", "Sqrt", "Sub", "Sum", "Swish", "Tanh", "ThresholdedRelu", "Tile", "Upsample",
        "Where",
    }
)  # fmt: skip
"""Operators that leave the axes where they are; those with several inputs align them at the last axis."""


def channel_axes(network: Network) -> dict[str, int]:
    """Find the channel axis of every tensor that has one, counted from 0.

    Convolutions and their like fix axis 1, MatMul and Gemm the last axis of their output; elementwise
    operators keep it, Transpose permutes it, reshaping loses it. What a producer says goes before what a
    consumer asks for.
    """
    axes: dict[str, int] = {}
    for _ in range(2):
        for index in network.order:
            for name, axis in _forward(network.nodes[index], network, axes):
                axes.setdefault(name, axis)
        for index in reversed(network.order):
            for name, axis in _backward(network.nodes[index], network, axes):
                axes.setdefault(name, axis)
    return {name: axis for name, axis in axes.items() if _inside(axis, network.shapes.get(name))}


def _inside(axis: int, shape: Shape | None) -> bool:
    return shape is None or 0 <= axis < len(shape)


def _rank(network: Network, name: str) -> int | None:
    shape = network.shapes.get(name)
    return None if shape is None else len(shape)


def _forward(node: Node, network: Network, axes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    if node.domain or not node.outputs:
        return
    if node.op_type in KEEPS:
        yield from ((out, axis) for out in node.outputs if out for axis in _kept(node, out, network, axes))
        return
    axis = _seed(node, network) if node.op_type not in {"Transpose"} else _permuted(node, axes)
    if axis is None and node.op_type.startswith("Reduce"):
        axis = _reduced(node, network, axes)
    if axis is not None and node.outputs[0]:
        yield node.outputs[0], axis


def _seed(node: Node, network: Network) -> int | None:
    """Answer the channel axis of the node's output where the operator fixes it."""
    if node.op_type in SPATIAL or node.op_type == "Gemm":
        return 1
    rank = _rank(network, node.outputs[0])
    if node.op_type == "MatMul" and rank and rank >= 2:
        constant_first = node.input(0) in network.constants and node.input(1) not in network.constants
        return rank - 2 if constant_first else rank - 1
    return rank - 1 if node.op_type == "LayerNormalization" and rank else None


def _kept(node: Node, out: str, network: Network, axes: Mapping[str, int]) -> Iterator[int]:
    rank = _rank(network, out)
    for name in _data_inputs(node, network):
        own = _rank(network, name)
        if name in axes:
            yield axes[name] + (rank - own if rank is not None and own is not None else 0)
            return


def _data_inputs(node: Node, network: Network) -> Iterable[str]:
    if node.op_type in {"Add", "Concat", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where"}:
        named = [name for name in node.inputs if name]
        # The operand with the most axes decides: a broadcast bias or gate may have lost its own.
        return sorted(named, key=lambda name: -(_rank(network, name) or 0))
    return node.inputs[:1]


def _permuted(node: Node, axes: Mapping[str, int]) -> int | None:
    source, perm = axes.get(node.input(0)), node.attributes.get("perm")
    if source is None or not isinstance(perm, tuple) or source not in perm:
        return None
    return perm.index(source)


def _reduced(node: Node, network: Network, axes: Mapping[str, int]) -> int | None:
    """Keep the axis of a reduction with ``keepdims`` unless it is the one reduced."""
    axis = axes.get(node.input(0))
    before, after = network.shapes.get(node.input(0)), network.shapes.get(node.outputs[0])
    if axis is None or before is None or after is None or len(before) != len(after):
        return None
    return axis if before[axis] is not None and before[axis] == after[axis] else None


def _backward(node: Node, network: Network, axes: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    first, out = node.input(0), node.outputs[0] if node.outputs else ""
    if node.domain or not first:
        return
    if node.op_type in SPATIAL:
        yield first, 1
    elif node.op_type == "Gemm":
        yield first, 0 if node.attributes.get("transA") else 1
    elif node.op_type in {"MatMul", "LayerNormalization"}:
        rank = _rank(network, first)
        yield from [(first, rank - 1)] if rank else []
    elif out in axes:
        yield from _backward_from_output(node, network, axes[out])


def _backward_from_output(node: Node, network: Network, axis: int) -> Iterator[tuple[str, int]]:
    perm = node.attributes.get("perm")
    if node.op_type == "Transpose" and isinstance(perm, tuple) and axis < len(perm):
        yield node.input(0), int(perm[axis])
    if node.op_type not in KEEPS:
        return
    rank = _rank(network, node.outputs[0])
    for name in _data_inputs(node, network):
        own = _rank(network, name)
        if name and name not in network.constants and own is not None and own == rank:
            yield name, axis
