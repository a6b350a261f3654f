"""Activations whose statistics follow exactly from another's, so that they need not be observed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from calib.core.graph.constants import ConstantReader
from calib.core.graph.network import Activation, Derivation, Network, Node

SAME = frozenset(
    {
        "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Dropout", "DepthToSpace",
        "SpaceToDepth", "Cast",
    }
)  # fmt: skip
REARRANGES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "DepthToSpace", "SpaceToDepth"})
"""Operators after which the source's channels are no longer the channels."""

WIDENS = frozenset(
    (narrow, wide)
    for narrow, wider in (("float16", 1), ("bfloat16", 1), ("float32", 2))
    for wide in ("", "float32", "float64")[wider:]
)
LARGEST = 3.4028234e38
"""A Clip attribute at or beyond float32's largest value is its default: no bound."""

Rule = Callable[[Node, Network, ConstantReader], Derivation | None]


def derive(
    node: Node, network: Network, constants: ConstantReader, floats: Mapping[str, str | None]
) -> Derivation | None:
    """Say how the first output of a node follows from its inputs, or None.

    Args:
        node: a node of the standard domain or not; custom operators never derive.
        network: its network.
        constants: reads clip bounds and flags.
        floats: element type of every activation; a source must be one of them, of known type.
    """
    rule = None if node.domain else RULES.get(node.op_type)
    found = rule(node, network, constants) if rule else None
    if found is None or any(floats.get(source) is None for source in found.sources):
        return None
    return found


def _same(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    if node.op_type == "Cast" and not _widens(node, network):
        return None
    if node.op_type == "Dropout" and _trains(node, network, constants):
        return None
    return Derivation("same", (node.input(0),))


def _widens(node: Node, network: Network) -> bool:
    before, after = network.elem_types.get(node.input(0)), network.elem_types.get(node.outputs[0])
    return before is not None and after is not None and (before == after or (before, after) in WIDENS)


def _trains(node: Node, network: Network, constants: ConstantReader) -> bool:
    if network.opset < 7:
        return not node.attributes.get("is_test", 0)
    flag = node.input(2)
    return bool(flag) and constants.scalar(flag) != 0.0


def _relu(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    del network, constants
    return Derivation("clip", (node.input(0),), low=0.0)


def _clip(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    if network.opset < 11:
        low, high = (_attribute_bound(node.attributes.get(key)) for key in ("min", "max"))
    else:
        low, high = (constants.scalar(node.input(slot)) for slot in (1, 2))
        if any(node.input(slot) and bound is None for slot, bound in ((1, low), (2, high))):
            return None
    if low is not None and high is not None and low > high:
        return None
    return Derivation("clip", (node.input(0),), low, high)


def _attribute_bound(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and abs(value) < LARGEST else None


def _concat(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    del network, constants
    return Derivation("concat", tuple(node.inputs)) if all(node.inputs) else None


def _negate(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    del network, constants
    return Derivation("negate", (node.input(0),))


def _abs(node: Node, network: Network, constants: ConstantReader) -> Derivation | None:
    del network, constants
    return Derivation("abs", (node.input(0),))


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(SAME, _same),
    "Relu": _relu,
    "Clip": _clip,
    "Concat": _concat,
    "Neg": _negate,
    "Abs": _abs,
}


def carried_axis(
    activation: Activation, derivation: Derivation, node: Node, sources: tuple[Activation, ...]
) -> int | None:
    """Answer the channel axis of a derived activation: the sources', moved as the node moves it, or None."""
    axes = {source.channel_axis for source in sources}
    if node.op_type in REARRANGES or len(axes) != 1 or None in axes:
        return None
    (axis,) = axes
    perm = node.attributes.get("perm")
    if node.op_type == "Transpose":
        expected = perm.index(axis) if isinstance(perm, tuple) and axis in perm else None
    else:
        expected = axis
    return expected if expected == activation.channel_axis else None


def joins_channels(node: Node, rank: int | None, channel_axis: int | None) -> bool | None:
    """Tell whether a Concat lays channels one after the other; None when its axis cannot be placed."""
    axis = node.attributes.get("axis", 1)
    if not isinstance(axis, int) or (axis < 0 and rank is None):
        return None
    return (axis + rank if axis < 0 and rank is not None else axis) == channel_axis
