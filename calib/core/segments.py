"""A network cut into a chain of smaller ones, so that not all of its inner tensors have to be kept at once.

Every node runs exactly once: what a later segment needs of an earlier one is an output there and an input here.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import onnx

from calib.core.expose import expose
from calib.core.graph import Network, inferred
from calib.core.graph.elements import read_type

HANDED_ON = ("float", "double", "bfloat16", "int", "uint", "bool")
"""Beginnings of the element types that can be handed from one segment to the next."""
ITEM_BYTES: Mapping[str, int] = {"float16": 2, "bfloat16": 2, "float64": 8, "int64": 8, "uint64": 8}
"""Bytes of an element where they are not 4."""


@dataclass(frozen=True)
class Segment:
    """A part of a network.

    Attributes:
        model: the network of this part; its outputs are the observed tensors and those that later segments read.
        observed: outputs wanted from it, in network order.
    """

    model: onnx.ModelProto
    observed: tuple[str, ...]

    @property
    def inputs(self) -> frozenset[str]:
        """Names of what it reads: network inputs and outputs of earlier segments."""
        return frozenset(value.name for value in self.model.graph.input)


def concrete_shapes(model: onnx.ModelProto, inputs: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
    """Shapes of a network's tensors when it is run on inputs of these shapes, as far as they follow from shapes alone.

    What the file itself says of inner tensors is not believed: exporters leave the shapes of the traced size behind.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    for value in bare.graph.input:
        if value.name in inputs:
            del value.type.tensor_type.shape.dim[:]
            for length in inputs[value.name]:
                value.type.tensor_type.shape.dim.add().dim_value = length
    graph = inferred(bare).graph
    shapes = {value.name: read_type(value)[1] for value in (*graph.value_info, *graph.output, *graph.input)}
    return {name: tuple(map(int, shape)) for name, shape in shapes.items() if shape is not None and None not in shape}  # type: ignore[arg-type]


def tensor_bytes(network: Network, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """Bytes of each tensor of known shape."""
    types = network.elem_types
    return {name: math.prod(shape) * ITEM_BYTES.get(types.get(name, ""), 4) for name, shape in shapes.items()}


def cut(
    model: onnx.ModelProto, network: Network, names: Sequence[str], sizes: Mapping[str, int], budget: int
) -> tuple[Segment, ...]:
    """Cut a network into segments whose observed tensors hold at most ``budget`` bytes each.

    A single tensor larger than the budget has a segment of its own. Among the places for a cut in the second half of
    the budget, the one that hands the least on is taken. A network that needs no cut, or cannot be cut, is one segment.

    Args:
        model: the network; left as it is.
        network: its analysis.
        names: tensors to observe, made by nodes, in network order.
        sizes: bytes of every tensor at the size the network will be run; one that is missing counts as nothing.
        budget: bytes.
    """
    if sum(sizes.get(name, 0) for name in names) <= budget:
        return (Segment(expose(model, names), tuple(names)),)
    wanted = frozenset(names)
    needed = needed_nodes(network, wanted)
    order = [index for index in network.order if index in needed]
    kinds = handed_types(model, network)
    ends = _ends(_weights(network, order, wanted, sizes), _handovers(network, order, sizes, kinds), budget)
    parts = [order[start:end] for start, end in pairwise((0, *ends))]
    return tuple(_segments(model, network, parts, wanted, kinds))


def reads_of(network: Network, index: int) -> list[str]:
    """Tensors that a node reads, captured ones too, constants left out."""
    node = network.nodes[index]
    return [name for name in (*node.inputs, *node.captured) if name and name not in network.constants]


def made_by(network: Network, index: int) -> list[str]:
    """Tensors that a node makes."""
    return [name for name in network.nodes[index].outputs if name]


def needed_nodes(network: Network, wanted: Collection[str]) -> frozenset[int]:
    """Nodes that the wanted tensors depend on, those that make constants left out."""
    found: set[int] = set()
    pending = list(wanted)
    while pending:
        index = network.producers.get(pending.pop())
        if index is not None and index not in found:
            found.add(index)
            pending.extend(reads_of(network, index))
    return frozenset(found)


def handed_types(model: onnx.ModelProto, network: Network) -> dict[str, onnx.ValueInfoProto]:
    """Declarations of the tensors that may be handed on, with as much of the shape as is known."""
    graph = inferred(model).graph
    values = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
    return {
        name: value
        for name, value in values.items()
        if network.elem_types.get(name, "").startswith(HANDED_ON)
        and value.type.WhichOneof("value") == "tensor_type"
        and value.type.tensor_type.elem_type
    }


def _weights(network: Network, order: Sequence[int], wanted: Collection[str], sizes: Mapping[str, int]) -> list[int]:
    """Bytes of the observed tensors that each node makes."""
    return [sum(sizes.get(name, 0) for name in made_by(network, index) if name in wanted) for index in order]


def _handovers(network: Network, order: Sequence[int], sizes: Mapping[str, int], kinds: Collection[str]) -> list[float]:
    """Bytes that a cut before each node hands on; infinite where something crosses that cannot be handed on."""
    last = {name: place for place, index in enumerate(order) for name in reads_of(network, index)}
    alive: set[str] = set()
    found: list[float] = []
    for place, index in enumerate(order):
        alive = {name for name in alive if last[name] >= place}
        found.append(sum(sizes.get(name, 0) for name in alive) if alive <= set(kinds) else math.inf)
        alive.update(name for name in made_by(network, index) if name in last)
    return found


def _ends(weights: Sequence[int], handovers: Sequence[float], budget: int) -> list[int]:
    """Places before which to cut, and the end."""
    total = np.concatenate([[0], np.cumsum(weights)])
    ends: list[int] = []
    start = 0
    while total[-1] - total[start] > budget:
        held = total[start + 1 : -1] - total[start]
        fitting = [start + 1 + at for at in range(len(held)) if 2 * held[at] >= budget and held[at] <= budget]
        allowed = [place for place in fitting if handovers[place] < math.inf]
        if allowed:
            start = min(allowed, key=lambda place: (handovers[place], -place))
        else:  # one tensor beyond the budget, or nowhere to cut: the next place where it can be
            later = [place for place in range(start + 1, len(weights)) if handovers[place] < math.inf]
            reached = [place for place in later if 2 * (total[place] - total[start]) >= budget]
            if not reached:
                break
            start = reached[0]
        ends.append(start)
    return [*ends, len(weights)]


def _segments(
    model: onnx.ModelProto,
    network: Network,
    parts: Sequence[Sequence[int]],
    wanted: Collection[str],
    kinds: Mapping[str, onnx.ValueInfoProto],
) -> Iterator[Segment]:
    reads = [{name for index in part for name in reads_of(network, index)} for part in parts]
    for place, part in enumerate(parts):
        made = [name for index in part for name in made_by(network, index)]
        later = set[str]().union(*reads[place + 1 :])
        outputs = [name for name in made if name in wanted or name in later]
        inputs = sorted(reads[place] - set(made))
        yield Segment(
            assemble(model, network, part, inputs, outputs, kinds), tuple(name for name in made if name in wanted)
        )


def assemble(
    model: onnx.ModelProto,
    network: Network,
    part: Sequence[int],
    inputs: Sequence[str],
    outputs: Sequence[str],
    kinds: Mapping[str, onnx.ValueInfoProto],
) -> onnx.ModelProto:
    """Assemble a segment: its nodes, and the constants they read with the nodes that make these."""
    answer = onnx.ModelProto(ir_version=model.ir_version)
    answer.opset_import.extend(model.opset_import)
    answer.functions.extend(model.functions)
    graph = answer.graph
    graph.name = model.graph.name
    nodes, stored = _with_constants(network, part)
    graph.node.extend(model.graph.node[index] for index in nodes)
    graph.initializer.extend(item for item in model.graph.initializer if item.name in stored)
    graph.sparse_initializer.extend(item for item in model.graph.sparse_initializer if item.values.name in stored)
    declared = {**kinds, **{value.name: value for value in model.graph.input}}
    graph.input.extend(declared[name] for name in inputs)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in outputs)
    return answer


def _with_constants(network: Network, part: Sequence[int]) -> tuple[list[int], set[str]]:
    """Add the nodes of the constants that a part reads, directly or not, and name the stored tensors."""
    nodes, stored = set(part), set[str]()
    pending = list(part)
    while pending:
        node = network.nodes[pending.pop()]
        for name in {*node.inputs, *node.captured} & network.constants:
            index = network.producers.get(name)
            if index is None:
                stored.add(name)
            elif index not in nodes:
                nodes.add(index)
                pending.append(index)
    return [index for index in network.order if index in nodes], stored
