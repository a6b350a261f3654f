"""Units of a Q/DQ network: the quantizers that are switched one at a time, and the network they are switched in.

A unit is a layer with the Q/DQ pairs on its operands, or a single tensor with its pairs. Pairs reach an operand
directly or through nodes that only move values (TensorRT wants them before a Pad or a MaxPool); such nodes are copied
for the operand, so that other readers of the same tensor keep what they had.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import onnx

from calib.core.graph import Network, Node, analyse
from calib.core.graph.naming import fresh
from calib.core.sensitivity.pairs import Pairs, refuse_integers, with_output_nodes
from calib.errors import ModelError

K = TypeVar("K")
Mode = Literal["alone", "without"]
Grain = Literal["layer", "tensor"]
MODES: tuple[Mode, ...] = ("alone", "without")
GRAINS: tuple[Grain, ...] = ("layer", "tensor")


@dataclass(frozen=True)
class Operand:
    """An operand that a unit switches.

    Attributes:
        node: index of the reader in the base network.
        slot: which of its inputs.
        root: tensor of the base network that the switched operand is made from.
        route: nodes from ``root`` to the operand, their outputs under names of their own; may be empty.
        value: tensor that the reader takes instead.
        constant: whether ``root`` is a constant, that is, a weight.
    """

    node: int
    slot: int
    root: str
    route: tuple[onnx.NodeProto, ...]
    value: str
    constant: bool


@dataclass(frozen=True)
class Unit:
    """What is switched at once.

    Attributes:
        name: of the layer or the tensor.
        op_type: operator of the layer, or of the node that makes the tensor.
        operands: what is switched, in network order.
    """

    name: str
    op_type: str
    operands: tuple[Operand, ...]

    @property
    def activations(self) -> tuple[str, ...]:
        """Quantized activations."""
        return tuple(dict.fromkeys(item.root for item in self.operands if not item.constant))

    @property
    def weights(self) -> tuple[str, ...]:
        """Quantized constants."""
        return tuple(dict.fromkeys(item.root for item in self.operands if item.constant))

    @property
    def nodes(self) -> tuple[int, ...]:
        """Readers in the base network."""
        return tuple(dict.fromkeys(item.node for item in self.operands))


@dataclass(frozen=True)
class Subject:
    """A network with switches.

    Attributes:
        model: the base: the float network (mode ``alone``) or the quantized one (mode ``without``).
        network: its analysis.
        units: what can be switched, in network order.
        stored: weights that are stored as integers only; they are as quantized in every run.
    """

    model: onnx.ModelProto
    network: Network
    units: tuple[Unit, ...]
    stored: tuple[str, ...]


def find_units(model: onnx.ModelProto, mode: Mode = "alone", grain: Grain = "layer") -> Subject:
    """Take a Q/DQ network apart.

    Args:
        model: the network, external data loaded; left as it is.
        mode: ``alone``: the base is the float network, and a unit switches its pairs on. ``without``: the base is the
            quantized network, and a unit switches its pairs off.
        grain: a unit is a ``layer`` with all pairs on its operands, or a ``tensor`` with its pairs.

    Raises:
        ModelError: the network holds integer operators, or no pair that can be switched.
    """
    refuse_integers(model)
    quantized = with_output_nodes(model)
    graph = Pairs(quantized, analyse(quantized))
    base = quantized if mode == "without" else graph.float_twin()
    network = graph.network if mode == "without" else analyse(base)
    operands = list(_operands(graph, base, network, mode))
    if not operands:
        raise ModelError(
            model.graph.name or "the network", expected="QuantizeLinear and DequantizeLinear that can be switched",
            got="a float network" if not graph.pairs else "none that a layer reads",
            remedy="name a build folder or a *.qdq.onnx, or a float network with --ranges",
        )  # fmt: skip
    grouped = _by_layer(operands, network) if grain == "layer" else _by_tensor(operands, network)
    return Subject(base, network, tuple(grouped), tuple(graph.stored))


def switched(subject: Subject, units: Iterable[Unit]) -> onnx.ModelProto:
    """Write the base network with some units switched, as one network."""
    answer = onnx.ModelProto()
    answer.CopyFrom(subject.model)
    operands = [item for unit in units for item in unit.operands]
    routes: dict[int, list[onnx.NodeProto]] = {}
    for item in operands:
        answer.graph.node[item.node].input[item.slot] = item.value
        routes.setdefault(item.node, []).extend(item.route)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in answer.graph.node]
    del answer.graph.node[:]
    for index in subject.network.order:
        answer.graph.node.extend([*routes.get(index, ()), nodes[index]])
    return answer


def _operands(graph: Pairs, base: onnx.ModelProto, network: Network, mode: Mode) -> Iterator[Operand]:
    """Find every operand with a pair on its way, in network order."""
    places = {_key(node): index for index, node in enumerate(base.graph.node)}
    taken = set(graph.network.names)
    for index in graph.network.order:
        node = graph.network.nodes[index]
        if index in graph.pairs or graph.is_moving(node):
            continue
        for slot, name in enumerate(node.inputs):
            route = graph.route(name) if name else []
            if route:
                yield _operand(graph, route, places[node.outputs], slot, mode, network, taken)


def _key(node: onnx.NodeProto) -> tuple[str, ...]:
    return tuple(node.output)


def _operand(
    graph: Pairs, route: Sequence[Node], node: int, slot: int, mode: Mode, network: Network, taken: set[str]
) -> Operand:
    kept = [item for item in route if mode == "alone" or item.index not in graph.pairs]
    root = route[0].inputs[0] if mode == "without" else graph.resolved(route[0].inputs[0])
    value, copies = root, []
    for item in kept:
        copy = onnx.NodeProto()
        copy.CopyFrom(graph.model.graph.node[item.index])
        copy.input[0] = value
        value = fresh(f"{item.outputs[0]}/switched", taken)
        copy.name = fresh(f"{copy.name or copy.op_type}/switched", taken)
        del copy.output[1:]
        copy.output[0] = value
        copies.append(copy)
    return Operand(node, slot, root, tuple(copies), value, root in network.constants)


def _by_layer(operands: Sequence[Operand], network: Network) -> Iterator[Unit]:
    """One unit a reader."""
    for index, members in _grouped(operands, lambda item: item.node).items():
        node = network.nodes[index]
        yield Unit(node.label, node.op_type, members)


def _by_tensor(operands: Sequence[Operand], network: Network) -> Iterator[Unit]:
    """One unit a tensor that is quantized."""
    for name, members in _grouped(operands, lambda item: item.root).items():
        maker = network.producer(name)
        kind = "Weight" if members[0].constant else "Input" if maker is None else maker.op_type
        yield Unit(name, kind, members)


def _grouped(operands: Sequence[Operand], key: Callable[[Operand], K]) -> Mapping[K, tuple[Operand, ...]]:
    groups: dict[K, list[Operand]] = {}
    for item in operands:
        groups.setdefault(key(item), []).append(item)
    return {name: tuple(members) for name, members in groups.items()}


def unique_names(units: Sequence[Unit]) -> tuple[Unit, ...]:
    """Number units whose names are equal, as those of unnamed nodes may be."""
    seen: dict[str, int] = {}
    answer = []
    for unit in units:
        seen[unit.name] = seen.get(unit.name, 0) + 1
        answer.append(unit if seen[unit.name] == 1 else replace(unit, name=f"{unit.name} #{seen[unit.name]}"))
    return tuple(answer)
