"""Which axis of a constant operand has one scale per index: that of the layer's output channels."""

from __future__ import annotations

from calib.core.graph import Network, Node
from calib.core.plan import PlacementOptions


def weight_axis(node: Node, slot: int, network: Network, options: PlacementOptions) -> int | None:
    """Choose the axis of a constant operand's scales, None for a single scale.

    Args:
        node: a Conv, ConvTranspose, Gemm or MatMul.
        slot: the operand's input slot, 0 or 1.
        network: knows the operand's shape; one of unknown rank, or of rank below 2, gets a single scale.
        options: choose for transposed convolutions.
    """
    shape = network.shapes.get(node.inputs[slot])
    if shape is None or len(shape) < 2:
        return None
    if node.op_type == "Conv":
        return 0 if slot == 1 else None
    if node.op_type == "ConvTranspose":
        return _transposed_axis(node, shape, options) if slot == 1 else None
    if node.op_type == "Gemm":
        transposed = bool(node.attributes.get("transB" if slot else "transA", 0))
        return int(transposed != bool(slot))
    return len(shape) - 1 if slot else len(shape) - 2


def _transposed_axis(node: Node, shape: tuple[int | None, ...], options: PlacementOptions) -> int | None:
    """Choose for a weight ``[Cin, Cout/group, …]``: axis 1, or 0 where each group has one output channel."""
    if options.conv_transpose != "axis":
        return None
    if options.conv_transpose_axis is not None:
        return options.conv_transpose_axis
    return 0 if node.attributes.get("group", 1) != 1 and shape[1] == 1 else 1
