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
from onnx import helper

from calib.core.graph import Network, Node, analyse
from calib.errors import ModelError

K = TypeVar("K")
Mode = Literal["alone", "without"]
Grain = Literal["layer", "tensor"]
MODES: tuple[Mode, ...] = ("alone", "without")
GRAINS: tuple[Grain, ...] = ("layer", "tensor")
QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
MOVES = frozenset(
    {"Flatten", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
    | {"DepthToSpace", "SpaceToDepth"}
)
"""Operators that move values, through which a pair reaches the operand of a layer."""
INTEGER_OPERATORS = frozenset(
    {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QLinearAdd", "QLinearConcat", "QGemm"}
)


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
    _refuse_integers(model)
    quantized = _with_output_nodes(model)
    graph = _Pairs(quantized, analyse(quantized))
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


def _refuse_integers(model: onnx.ModelProto) -> None:
    for node in model.graph.node:
        if node.op_type in INTEGER_OPERATORS:
            raise ModelError(
                f"node {node.name or node.op_type}", expected="Q/DQ pairs around float operators",
                got=f"the integer operator {node.op_type}", remedy="export the network in Q/DQ format",
            )  # fmt: skip


def _with_output_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let every graph output be made by an Identity of its own, so that a pair before it has a reader to switch."""
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    makers = {name: node for node in answer.graph.node for name in node.output if name}
    taken = set(makers) | {item.name for item in (*answer.graph.input, *answer.graph.initializer)}
    for output in answer.graph.output:
        maker = makers.get(output.name)
        if maker is None or maker.op_type not in MOVES | {DEQUANTIZE}:
            continue
        inner = _fresh(f"{output.name}/inner", taken)
        for node in answer.graph.node:
            _rename(node.input, output.name, inner)
            _rename(node.output, output.name, inner)
        answer.graph.node.append(helper.make_node("Identity", [inner], [output.name], name=f"output {output.name}"))
    return answer


def _rename(names: Sequence[str] | object, old: str, new: str) -> None:
    for place, name in enumerate(names):  # type: ignore[arg-type,var-annotated]
        if name == old:
            names[place] = new  # type: ignore[index]


def _fresh(wanted: str, taken: set[str]) -> str:
    name, count = wanted, 1
    while name in taken:
        name, count = f"{wanted}_{count}", count + 1
    taken.add(name)
    return name


class _Pairs:
    """The switchable Q and DQ nodes of a network, and what the network is without them."""

    def __init__(self, model: onnx.ModelProto, network: Network) -> None:
        self.model, self.network = model, network
        self._outputs = {output.name for output in model.graph.output}
        fixed = [node for node in network.nodes if node.op_type in (QUANTIZE, DEQUANTIZE) and self._is_static(node)]
        quantizers = {node.index for node in fixed if node.op_type == QUANTIZE and self._is_closed(node.outputs[0])}
        restorers = {node.index for node in fixed if node.op_type == DEQUANTIZE and self._source(node) in quantizers}
        self.pairs = quantizers | restorers
        self.quantizers = quantizers
        self.stored = [
            node.inputs[0]
            for node in fixed
            if node.op_type == DEQUANTIZE and node.index not in restorers and node.inputs[0] in network.constants
        ]

    def is_moving(self, node: Node | None) -> bool:
        """Whether a node only moves values; the Identity that makes a graph output ends a route."""
        return node is not None and not node.domain and node.op_type in MOVES and node.outputs[0] not in self._outputs

    def route(self, name: str) -> list[Node]:
        """Nodes from the first quantizer on the way to a tensor, in this order; empty where there is none."""
        found: list[Node] = []
        node = self.network.producer(name)
        while node is not None and (node.index in self.pairs or self.is_moving(node)):
            found.append(node)
            node = self.network.producer(node.inputs[0])
        firsts = [place for place, item in enumerate(found) if item.index in self.quantizers]
        return found[firsts[-1] :: -1] if firsts else []

    def resolved(self, name: str) -> str:
        """The tensor that stands for a tensor once the pairs are gone."""
        node = self.network.producer(name)
        while node is not None and node.index in self.pairs:
            name = node.inputs[0]
            node = self.network.producer(name)
        return name

    def float_twin(self) -> onnx.ModelProto:
        """The network without its pairs."""
        answer = onnx.ModelProto()
        answer.CopyFrom(self.model)
        kept = [node for index, node in enumerate(answer.graph.node) if index not in self.pairs]
        nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
        for node in nodes:
            for slot, name in enumerate(node.input):
                node.input[slot] = self.resolved(name)
        del answer.graph.node[:], answer.graph.value_info[:]
        answer.graph.node.extend(nodes)
        return answer

    def _is_static(self, node: Node) -> bool:
        return bool(node.inputs[0]) and all(name in self.network.constants for name in node.inputs[1:] if name)

    def _is_closed(self, name: str) -> bool:
        """Whether everything that reads a quantized tensor ends in a DequantizeLinear."""
        readers = [self.network.nodes[use.node] for use in self.network.consumers.get(name, ())]
        return bool(readers) and all(
            reader.op_type == DEQUANTIZE or (self.is_moving(reader) and self._is_closed(reader.outputs[0]))
            for reader in readers
        )

    def _source(self, node: Node) -> int | None:
        """Index of the QuantizeLinear that a DequantizeLinear undoes."""
        found = self.network.producer(node.inputs[0])
        while found is not None and self.is_moving(found):
            found = self.network.producer(found.inputs[0])
        return None if found is None or found.op_type != QUANTIZE else found.index


def _operands(graph: _Pairs, base: onnx.ModelProto, network: Network, mode: Mode) -> Iterator[Operand]:
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
    graph: _Pairs, route: Sequence[Node], node: int, slot: int, mode: Mode, network: Network, taken: set[str]
) -> Operand:
    kept = [item for item in route if mode == "alone" or item.index not in graph.pairs]
    root = route[0].inputs[0] if mode == "without" else graph.resolved(route[0].inputs[0])
    value, copies = root, []
    for item in kept:
        copy = onnx.NodeProto()
        copy.CopyFrom(graph.model.graph.node[item.index])
        copy.input[0] = value
        value = _fresh(f"{item.outputs[0]}/switched", taken)
        copy.name = _fresh(f"{copy.name or copy.op_type}/switched", taken)
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
