"""What part a node plays in a segmentation network: last layer, gate, residual addition, movable padding."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from calib.core.graph import Network, Node, Shape
from calib.core.graph.constants import SHAPE_SLOTS, SHAPE_SOURCES

COMPUTE = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
"""Operators with an INT8 kernel of their own."""

GLOBAL_POOLS = frozenset({"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"})
SPATIAL_GROWTH = frozenset({"Resize", "Upsample", "ConvTranspose", "GridSample"})
MERGES = frozenset({"Add", "Concat", "Div", "Einsum", "Max", "Mean", "Min", "Mul", "Sub", "Sum"})
LINEAR_TAIL = frozenset({"Add", "BatchNormalization", "Cast", "Dropout", "Identity", "Mul"})
"""Operators that may stand between a layer and the residual addition that fuses with it."""


@dataclass(frozen=True)
class ResidualAdd:
    """An addition of two activations.

    Attributes:
        node: its index.
        layer: index of the layer whose output it adds, which fuses with it; None when there is none.
        shortcut: input slot of the other side.
        reason: why it is no residual connection (a reason code), or empty.
    """

    node: int
    layer: int | None
    shortcut: int
    reason: str = ""


@dataclass(frozen=True)
class Roles:
    """The parts nodes play, by node index.

    Attributes:
        logits: layers after which only elementwise and resampling operators stand before a graph output.
        gates: nodes of squeeze-and-excitation gates: the pool, what follows it, the gating Mul.
        context: other nodes that work on globally pooled vectors, the pool included.
        additions: additions of two activations.
    """

    logits: frozenset[int]
    gates: frozenset[int]
    context: frozenset[int]
    additions: Mapping[int, ResidualAdd]


def find_roles(network: Network) -> Roles:
    """Find the part every node plays."""
    floats = frozenset(item.name for item in network.activations)
    pooled = _pooled_tensors(network, floats)
    gates = frozenset(_gate_nodes(network, floats, pooled))
    vectors = {network.producers[name] for name in pooled}
    return Roles(
        logits=_logit_layers(network),
        gates=gates,
        context=frozenset(vectors) - gates,
        additions={item.node: item for item in _additions(network, floats, pooled)},
    )


def is_standard(node: Node, *op_types: str) -> bool:
    """Tell whether a node is one of these standard operators."""
    return not node.domain and node.op_type in op_types


def float_inputs(node: Node, floats: frozenset[str]) -> tuple[str, ...]:
    """Name the activations that a node reads directly."""
    return tuple(name for name in node.inputs if name in floats)


def _ordered(network: Network) -> Iterator[Node]:
    return (network.nodes[index] for index in network.order)


def _logit_layers(network: Network) -> frozenset[int]:
    """Walk back from the outputs to the first layers.

    At a merge of several activations, only sides that no later layer reads are followed: a score map is read by
    nothing else, while the shortcut of a residual block is a feature that layers read.
    """
    feeding = _feeding_layers(network)
    found: set[int] = set()
    seen: set[str] = set()
    pending = [item.name for item in network.outputs]
    while pending:
        name = pending.pop()
        node = network.producer(name)
        if name in seen or node is None:
            continue
        seen.add(name)
        if is_standard(node, *COMPUTE):
            found.add(node.index)
            continue
        sides = dict.fromkeys(_computed_inputs(node, network))
        pending.extend(side for side in sides if len(sides) == 1 or side not in feeding)
    return frozenset(found)


def _computed_inputs(node: Node, network: Network) -> Iterator[str]:
    """Name the tensors a node computes on: labels and masks too, but neither shapes nor constants."""
    if node.op_type in SHAPE_SOURCES and not node.domain:
        return
    slots = frozenset[int]() if node.domain else SHAPE_SLOTS.get(node.op_type, frozenset())
    data = (name for slot, name in enumerate(node.inputs) if slot not in slots)
    yield from (name for name in (*data, *node.captured) if name and name not in network.constants)


def _feeding_layers(network: Network) -> frozenset[str]:
    """Name the tensors from which some layer can be reached."""
    feeding: set[str] = set()
    for index in reversed(network.order):
        node = network.nodes[index]
        if is_standard(node, *COMPUTE) or feeding.intersection(node.outputs):
            feeding.update(filter(None, (*node.inputs, *node.captured)))
    return frozenset(feeding)


def _pooled_tensors(network: Network, floats: frozenset[str]) -> frozenset[str]:
    """Name the activations that hold one vector per image: globally pooled, and what is computed from it alone."""
    pooled: set[str] = set()
    for node in _ordered(network):
        sources = float_inputs(node, floats)
        follows = bool(sources) and pooled.issuperset(sources) and node.op_type not in SPATIAL_GROWTH
        if follows or _pools_globally(node, network):
            pooled.update(name for name in node.outputs if name in floats)
    return frozenset(pooled)


def _pools_globally(node: Node, network: Network) -> bool:
    if node.domain or not node.outputs:
        return False
    before, after = network.shapes.get(node.input(0)), network.shapes.get(node.outputs[0])
    if node.op_type in {"AveragePool", "MaxPool"}:
        return _one_position(after) and not _one_position(before)
    if node.op_type.startswith("Reduce"):
        return _reduces_space(node, network, before)
    return node.op_type in GLOBAL_POOLS


def _one_position(shape: Shape | None) -> bool:
    return shape is not None and len(shape) >= 3 and all(length == 1 for length in shape[2:])


def _reduces_space(node: Node, network: Network, shape: Shape | None) -> bool:
    """Tell whether a reduction runs over two or more axes of a map, the channels not among them."""
    axes = node.attributes.get("axes", network.values.get(node.input(1)))
    if shape is None or len(shape) < 4 or not isinstance(axes, tuple):
        return False
    channel = next((item.channel_axis for item in network.activations if item.name == node.input(0)), None)
    reduced = {int(axis) % len(shape) for axis in axes if isinstance(axis, int | float)}
    return len(reduced) >= 2 and channel not in reduced and 0 not in reduced


def _gate_nodes(network: Network, floats: frozenset[str], pooled: frozenset[str]) -> Iterator[int]:
    """Find the multiplications of a map by a pooled vector, and the nodes that make the vector."""
    wanted: set[str] = set()
    for index in reversed(network.order):
        node = network.nodes[index]
        sides = set(float_inputs(node, floats))
        gating = is_standard(node, "Mul") and bool(sides & pooled) and not pooled.issuperset(sides)
        if gating or wanted.intersection(node.outputs):
            yield index
            wanted.update(sides & pooled)


def _additions(network: Network, floats: frozenset[str], pooled: frozenset[str]) -> Iterator[ResidualAdd]:
    depth = _depths(network)
    for node in _ordered(network):
        sides = float_inputs(node, floats)
        if is_standard(node, "Add", "Sum") and len(node.inputs) == 2 and len(sides) == 2:
            yield _addition(node, network, pooled, depth)


def _addition(node: Node, network: Network, pooled: frozenset[str], depth: Mapping[str, int]) -> ResidualAdd:
    one, other = node.inputs
    if pooled.intersection(node.inputs) or not _same_shape(network.shapes.get(one), network.shapes.get(other)):
        return ResidualAdd(node.index, None, 0, "broadcast")
    layers = [fusing_layer(name, network) for name in node.inputs]
    candidates = [slot for slot in (0, 1) if layers[slot] is not None]
    if not candidates or one == other:
        return ResidualAdd(node.index, None, 0, "no_layer_to_fuse")
    # Both sides may end in a layer (a projected shortcut): the deeper one is the block, the other its shortcut.
    main = max(candidates, key=lambda slot: (depth.get(node.inputs[slot], 0), layers[slot] or 0))
    return ResidualAdd(node.index, layers[main], 1 - main)


def _same_shape(one: Shape | None, other: Shape | None) -> bool:
    if one is None or other is None:
        return True
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(a == b or a is None or b is None for a, b in pairs)


def fusing_layer(name: str, network: Network) -> int | None:
    """Find the layer whose output, alone and through linear steps only, is this tensor."""
    node = network.producer(name)
    while node is not None and not node.domain and len(network.consumers.get(name, ())) == 1:
        if name in network.output_names:
            return None
        if node.op_type in COMPUTE:
            return node.index
        data = [item for item in node.inputs if item and item not in network.constants]
        if node.op_type not in LINEAR_TAIL or len(data) != 1:
            return None
        name = data[0]
        node = network.producer(name)
    return None


def _depths(network: Network) -> dict[str, int]:
    """Count the layers on the longest path to every tensor."""
    depth: dict[str, int] = {}
    for node in _ordered(network):
        longest = max((depth.get(name, 0) for name in node.inputs), default=0)
        depth.update((name, longest + is_standard(node, *COMPUTE)) for name in node.outputs if name)
    return depth


def passes_range(node: Node, network: Network) -> bool:
    """Tell whether the first output holds some of the input's values and zeros only, so that its range serves both."""
    return is_standard(node, "MaxPool") or pad_keeps_range(node, network)


def pad_keeps_range(node: Node, network: Network) -> bool:
    """Tell whether a Pad adds only zeros or copies, so that Q/DQ may stand before it instead of after."""
    if not is_standard(node, "Pad"):
        return False
    if node.attributes.get("mode", "constant") != "constant":
        return True
    if network.opset < 11:
        return node.attributes.get("value", 0.0) == 0
    fill = node.input(2)
    return not fill or network.values.get(fill) == (0.0,)
