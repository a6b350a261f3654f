"""Which constants of a network are its weights, to be trained, and which are part of what it computes."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Network, Node
from calib.core.graph.stored import StoredValues
from calib.core.roles import COMPUTE, is_standard

SCALED = frozenset({"InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization", "PRelu"})
"""Operators whose constants behind the data are weights. Those of BatchNormalization are not: inference folds its four
constants into the convolution before it, so they stay as they are while the convolution learns."""
ARITHMETIC = frozenset({"Add", "Mul", "Sub", "Div"})


def trainable_constants(network: Network, stored: StoredValues) -> tuple[str, ...]:
    """Name the stored float32 tensors that training may change, in network order.

    These are the operands and biases of convolutions and matrix products, the scales and biases of normalisations
    that inference keeps, slopes, and tensors added to or multiplied with what a layer has made (a bias that stands
    apart, a position code). Means and deviations of the picture, bounds of activations, and shapes are none.

    Args:
        network: the analysed network.
        stored: its stored constants.
    """
    found: dict[str, None] = {}
    behind: set[str] = set()
    for index in network.order:
        node = network.nodes[index]
        layer = is_standard(node, *COMPUTE)
        if layer or any(name in behind for name in node.inputs):
            behind.update(filter(None, node.outputs))
        for name in _weights(node, network, behind, layer=layer):
            found.setdefault(stored.root(name))
    fixed = set(_statistics(network, stored))
    return tuple(name for name in found if network.elem_types.get(name) == "float32" and name not in fixed)


def _statistics(network: Network, stored: StoredValues) -> Iterator[str]:
    """Name what batch normalisations hold. Exporters store equal tensors once: zeros may be both a bias and a mean."""
    for node in network.nodes:
        if is_standard(node, "BatchNormalization"):
            yield from (stored.root(name) for name in node.inputs[1:] if name)


def _weights(node: Node, network: Network, behind: set[str], *, layer: bool) -> Iterator[str]:
    """Name a node's constant operands that are weights."""
    if layer:
        slots = range(3)
    elif is_standard(node, *SCALED):
        slots = range(1, 3)
    elif is_standard(node, *ARITHMETIC) and any(name in behind for name in node.inputs):
        slots = range(2)
    else:
        return
    for name in (node.input(slot) for slot in slots):
        if name in network.constants and (layer or not _is_single(name, network)):
            yield name


def _is_single(name: str, network: Network) -> bool:
    """Whether a constant is one number, or may be: of such activations and scalings are made."""
    shape = network.shapes.get(name)
    if shape is None:
        return True
    size = 1
    for length in shape:
        size *= length or 1
    return size == 1
