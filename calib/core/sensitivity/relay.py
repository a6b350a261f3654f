"""A network as a relay: legs that run one after the other, and for each unit the parts that differ with it switched."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import onnx

from calib.core.graph import Network
from calib.core.segments import assemble, concrete_shapes, handed_types, made_by, needed_nodes, reads_of, tensor_bytes
from calib.core.sensitivity.cutting import (
    SETUP_NANOSECONDS,
    SETUP_NANOSECONDS_A_BYTE,
    Line,
    choose_cuts,
    handed_on,
    places_to_cut,
)
from calib.core.sensitivity.units import Operand, Subject
from calib.core.sensitivity.work import Shapes, macs, nanoseconds


@dataclass(frozen=True)
class Part:
    """A piece of a network as a network.

    Attributes:
        model: inputs and outputs are tensors of the whole network.
        inputs: what it reads.
        outputs: what it gives.
    """

    model: onnx.ModelProto
    inputs: frozenset[str]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Leg:
    """A leg of the relay.

    Attributes:
        nodes: indices, in network order.
        reads: tensors it takes from earlier legs and the network's input.
        outputs: tensors it makes that later legs read, or the output that is scored.
        taps: tensors inside it that the units at its nodes start from.
    """

    nodes: tuple[int, ...]
    reads: frozenset[str]
    outputs: tuple[str, ...]
    taps: tuple[str, ...]


class Relay:
    """A network cut into legs for running its units alone.

    Args:
        subject: the network with its units; only those that reach ``output`` are run.
        output: the tensor that is scored.
        shapes: of its tensors at the size it is run at.
    """

    def __init__(self, subject: Subject, output: str, shapes: Shapes) -> None:
        self._subject, self._network, self.output = subject, subject.network, output
        self._kinds = handed_types(subject.model, subject.network)
        needed = needed_nodes(self._network, (output,))
        order = [index for index in self._network.order if index in needed]
        self._stored: dict[str, int] = {item.name: item.ByteSize() for item in subject.model.graph.initializer}
        self._extra = _reads_of_units(subject)
        self._reach = _reach(subject, order)
        self.reachable = tuple(number for number, unit in enumerate(subject.units) if needed.intersection(unit.nodes))
        self.legs = self._cut(order, shapes)
        self._leg_of = {index: number for number, leg in enumerate(self.legs) for index in leg.nodes}

    def legs_of(self, unit: int) -> tuple[int, ...]:
        """Legs at whose nodes a unit switches operands, ascending."""
        found = {self._leg_of[index] for index in self._subject.units[unit].nodes if index in self._leg_of}
        return tuple(sorted(found))

    def whole(self, leg: int) -> Part:
        """A leg as it is."""
        own = self.legs[leg]
        return self._part(own.nodes, own.outputs)

    def tapped(self, leg: int) -> Part:
        """A leg that gives what the units at its nodes start from."""
        own = self.legs[leg]
        return self._part(self._upstream(own, own.taps), own.taps)

    def switched(self, unit: int, leg: int) -> Part:
        """What a leg computes otherwise with a unit switched: only the nodes that the unit reaches."""
        own, bit = self.legs[leg], 1 << unit
        reached = [index for index in own.nodes if self._reach[index] & bit]
        nodes = self._with_unknown(own, reached)
        made = {name for index in reached for name in made_by(self._network, index)}
        outputs = tuple(name for name in own.outputs if name in made)
        operands = [item for item in self._subject.units[unit].operands if item.node in reached]
        return self._part(nodes, outputs, operands)

    def _cut(self, order: Sequence[int], shapes: Shapes) -> tuple[Leg, ...]:
        network, sizes = self._network, tensor_bytes(self._network, shapes)
        starts: dict[int, int] = {}
        for number, unit in enumerate(self._subject.units):
            for index in unit.nodes:
                starts[index] = starts.get(index, 0) | 1 << number
        line = Line(
            order=order,
            reads=[self._reads(index) for index in order],
            reach=[self._reach[index] for index in order],
            starts=[starts.get(index, 0) for index in order],
            cost=[nanoseconds(network.nodes[index], network, shapes) for index in order],
            setup=[self._setup(index) for index in order],
            taps=[sum(sizes.get(name, 0) for name in self._reads(index)) if index in starts else 0 for index in order],
        )
        alive = handed_on(line, network)
        places = places_to_cut(line, network, alive, self._kinds, sizes)
        cuts = choose_cuts(line, places, alive, sizes)
        return tuple(self._leg(order[start:end], alive[start], alive[end]) for start, end in pairwise(cuts))

    def _setup(self, index: int) -> float:
        read = sum(self._stored.get(name, 0) for name in self._network.nodes[index].inputs)
        return SETUP_NANOSECONDS + SETUP_NANOSECONDS_A_BYTE * read

    def _leg(self, nodes: Sequence[int], before: frozenset[str], after: frozenset[str]) -> Leg:
        made = [name for index in nodes for name in made_by(self._network, index)]
        outputs = tuple(name for name in made if name in after or name == self.output)
        taps: dict[str, None] = {}
        for number, unit in enumerate(self._subject.units):
            if set(unit.nodes).intersection(nodes):
                reached = [index for index in nodes if self._reach[index] & 1 << number]
                own = {name for index in reached for name in made_by(self._network, index)}
                read = {name for index in reached for name in self._reads(index)}
                taps.update(dict.fromkeys(sorted(read - own)))
        inside = tuple(name for name in made if name in taps and name in self._kinds)
        return Leg(tuple(nodes), before, outputs, inside)

    def _reads(self, index: int) -> list[str]:
        return [*reads_of(self._network, index), *self._extra.get(index, ())]

    def _upstream(self, leg: Leg, wanted: Iterable[str]) -> list[int]:
        """Nodes of a leg that some of its tensors need."""
        needed: set[int] = set()
        pending = list(wanted)
        inside = set(leg.nodes)
        while pending:
            index = self._network.producers.get(pending.pop())
            if index in inside and index not in needed:
                needed.add(index)
                pending.extend(self._reads(index))
        return [index for index in leg.nodes if index in needed]

    def _with_unknown(self, leg: Leg, reached: Sequence[int]) -> list[int]:
        """Add the nodes that make what cannot be handed over, because nobody knows its type."""
        nodes, inside = set(reached), set(leg.nodes)
        pending = list(reached)
        while pending:
            for name in self._reads(pending.pop()):
                index = self._network.producers.get(name)
                if name not in self._kinds and index in inside and index not in nodes:
                    nodes.add(index)
                    pending.append(index)
        return [index for index in leg.nodes if index in nodes]

    def _part(self, nodes: Sequence[int], outputs: Sequence[str], operands: Sequence[Operand] = ()) -> Part:
        """Assemble nodes, with the operands of a unit switched."""
        model, network = self._subject.model, self._network
        made = {name for index in nodes for name in made_by(network, index)}
        values = {(item.node, item.slot): item for item in operands}
        reads = {
            name
            for index in nodes
            for slot, name in enumerate([*network.nodes[index].inputs, *network.nodes[index].captured])
            if name and name not in network.constants and (index, slot) not in values
        }
        reads |= {name for item in operands for name in _inputs_of(item) if name not in network.constants}
        inputs = sorted(reads - made)
        part = assemble(model, network, nodes, inputs, outputs, self._kinds)
        _switch(part, network, model, operands)
        return Part(part, frozenset(inputs), tuple(outputs))


def _inputs_of(operand: Operand) -> list[str]:
    """Tensors of the base network that an operand's route reads."""
    inner = {node.output[0] for node in operand.route}
    names = [name for node in operand.route for name in node.input if name and name not in inner]
    return names or [operand.root]


def _reads_of_units(subject: Subject) -> dict[int, list[str]]:
    """Of each node, what units at it read besides its own inputs."""
    found: dict[int, list[str]] = {}
    for unit in subject.units:
        for item in unit.operands:
            names = [name for name in _inputs_of(item) if name not in subject.network.constants]
            found.setdefault(item.node, []).extend(names)
    return found


def _reach(subject: Subject, order: Sequence[int]) -> dict[int, int]:
    """Of each node, the units that change what it makes, as a bit mask."""
    network = subject.network
    found: dict[int, int] = {}
    for number, unit in enumerate(subject.units):
        for index in unit.nodes:
            found[index] = found.get(index, 0) | 1 << number
    for index in order:
        for name in reads_of(network, index):
            producer = network.producers.get(name)
            if producer is not None:
                found[index] = found.get(index, 0) | found.get(producer, 0)
        found.setdefault(index, 0)
    return found


def _switch(part: onnx.ModelProto, network: Network, model: onnx.ModelProto, operands: Sequence[Operand]) -> None:
    """Put the routes of a unit's operands into a part, with the constants they read."""
    if not operands:
        return
    readers = {network.nodes[item.node].outputs: item.node for item in operands}
    by_node: dict[int, list[Operand]] = {}
    for item in operands:
        by_node.setdefault(item.node, []).append(item)
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in part.graph.node]
    present = {name for node in nodes for name in node.output} | {item.name for item in part.graph.initializer}
    makers, stored = _constants(network, model, operands, present)
    del part.graph.node[:]
    part.graph.node.extend(makers)
    for node in nodes:
        own = by_node.get(readers.get(tuple(node.output), -1), ())
        for item in own:
            part.graph.node.extend(item.route)
            node.input[item.slot] = item.value
        part.graph.node.append(node)
    part.graph.initializer.extend(stored)


def _constants(
    network: Network, model: onnx.ModelProto, operands: Sequence[Operand], present: Collection[str]
) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    """Nodes and stored tensors behind the constants that routes read, as far as they are not there yet."""
    nodes: set[int] = set()
    names: set[str] = set()
    pending = [name for item in operands for name in _inputs_of(item) if name in network.constants]
    while pending:
        name = pending.pop()
        if name in names or name in present:
            continue
        names.add(name)
        index = network.producers.get(name)
        if index is not None:
            nodes.add(index)
            pending.extend(item for item in (*network.nodes[index].inputs, *network.nodes[index].captured) if item)
    stored = [item for item in model.graph.initializer if item.name in names]
    return [model.graph.node[index] for index in network.order if index in nodes], stored


def all_shapes(subject: Subject, inputs: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Shapes of a base network's tensors on inputs of these shapes, constants included, as far as they follow."""
    stored = {item.name: tuple(item.dims) for item in subject.model.graph.initializer}
    return {**stored, **concrete_shapes(subject.model, inputs)}


def unit_macs(subject: Subject, shapes: Shapes) -> list[int]:
    """Multiply-accumulates of the nodes that each unit switches operands of."""
    return [sum(macs(subject.network.nodes[index], shapes) for index in unit.nodes) for unit in subject.units]
