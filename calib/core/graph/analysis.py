"""From an ONNX protobuf to a :class:`Network`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import onnx

from calib.core.graph import structure
from calib.core.graph.channels import channel_axes
from calib.core.graph.constants import CONSTANT, FROM_SHAPE, ConstantReader, data_like, levels, small_constants
from calib.core.graph.derivation import carried_axis, derive, joins_channels
from calib.core.graph.elements import NON_TENSOR, read_type, tensor_types
from calib.core.graph.network import (
    FLOAT_TYPES,
    Activation,
    Derivation,
    GraphTensor,
    Network,
    Node,
    Uncovered,
    UncoveredReason,
)

LOW_PRECISION = ("float8", "float4", "int4", "uint4", "int2", "uint2")


def analyse(model: onnx.ModelProto) -> Network:
    """Find a network's activations, constants and everything the writers and the collector need of its graph.

    The model is not changed. Nodes may stand in any order. Tensors whose type ONNX cannot infer (behind custom
    operators) become activations with ``elem_type=None``: the runtime settles whether they are float.

    Raises:
        ModelError: the graph is not a graph: a tensor made twice or by nothing, a cycle.
    """
    draft, grade = _wired(model)
    extra = data_like(draft.nodes, draft.order, grade, draft.consumers, [out.name for out in draft.outputs])
    covered, uncovered = _sort_out(draft, grade, extra, model)
    network = replace(draft, activations=covered, not_covered=uncovered)
    axes = channel_axes(network)
    placed = tuple(replace(item, channel_axis=axes.get(item.name)) for item in covered)
    return replace(network, activations=_with_derivations(placed, network, ConstantReader(model, network)))


def _wired(model: onnx.ModelProto) -> tuple[Network, Mapping[str, int]]:
    graph = model.graph
    nodes = structure.read_nodes(graph)
    fixed = tuple(structure.initializer_names(graph))
    inputs = tuple(_graph_tensor(value) for value in graph.input if value.name not in set(fixed))
    roots = (*(item.name for item in inputs), *fixed)
    producers = structure.producers_of(nodes, roots)
    order = structure.topological_order(nodes, producers, roots)
    opsets = {structure.standard_domain(entry.domain): entry.version for entry in model.opset_import}
    types, shapes = tensor_types(model, nodes, order, opsets)
    grade = levels(nodes, order, [item.name for item in inputs], fixed)
    draft = Network(
        inputs=inputs,
        outputs=tuple(_graph_tensor(value) for value in graph.output),
        activations=(),
        constants=frozenset(name for name, level in grade.items() if level == CONSTANT),
        not_covered=(),
        nodes=nodes,
        order=order,
        producers=producers,
        consumers=structure.consumers_of(nodes),
        elem_types=types,
        shapes=shapes,
        opsets=opsets,
        values=dict(small_constants(model)),
        names=structure.all_names(model),
    )
    return draft, grade


def _graph_tensor(value: onnx.ValueInfoProto) -> GraphTensor:
    elem_type, shape = read_type(value)
    return GraphTensor(value.name, elem_type, shape)


def _tensors(network: Network) -> Iterator[tuple[str, Node | None]]:
    """List every tensor of the main graph in network order."""
    yield from ((item.name, None) for item in network.inputs)
    for index in network.order:
        node = network.nodes[index]
        for slot, name in enumerate(node.outputs):
            if name or slot == 0:
                yield name, node


def _sort_out(
    network: Network, grade: Mapping[str, int], extra: frozenset[str], model: onnx.ModelProto
) -> tuple[tuple[Activation, ...], tuple[Uncovered, ...]]:
    covered: list[Activation] = []
    uncovered: list[Uncovered] = []
    for name, node in _tensors(network):
        op_type = node.op_type if node else "Input"
        reason = _reason(name, network.elem_types.get(name), grade, extra)
        if reason:
            uncovered.append(Uncovered(name, reason, op_type))
        else:
            covered.append(_activation(name, node, network))
    uncovered.extend(_hidden(model))
    return tuple(covered), tuple(uncovered)


def _reason(
    name: str, elem_type: str | None, grade: Mapping[str, int], extra: frozenset[str]
) -> UncoveredReason | None:
    if not name:
        return "empty name"
    kind = _kind(elem_type)
    if grade[name] == CONSTANT:
        return "constant"
    if kind is None and grade[name] == FROM_SHAPE and name not in extra:
        return "shape arithmetic"
    return kind


def _kind(elem_type: str | None) -> UncoveredReason | None:
    if elem_type is None or elem_type in FLOAT_TYPES:
        return None
    if elem_type in {"bool", "string"}:
        return "bool" if elem_type == "bool" else "string"
    if elem_type.startswith(LOW_PRECISION):
        return "low precision"
    return "integer" if elem_type.startswith(("int", "uint")) else "not a tensor"


def _activation(name: str, node: Node | None, network: Network) -> Activation:
    elem_type = network.elem_types.get(name)
    return Activation(
        name=name,
        producer=None if node is None else node.index,
        op_type="Input" if node is None else node.op_type,
        elem_type=None if elem_type == NON_TENSOR else elem_type,
        shape=network.shapes.get(name),
        channel_axis=None,
    )


def _hidden(model: onnx.ModelProto) -> Iterator[Uncovered]:
    """List the tensors made inside subgraphs and functions; no calibrator reaches them."""
    for graph in list(structure.all_graphs(model.graph))[1:]:
        for node in graph.node:
            yield from (Uncovered(name, "inside subgraph", node.op_type) for name in node.output if name)
    for function in model.functions:
        for node in function.node:
            yield from (Uncovered(name, "inside function", node.op_type) for name in node.output if name)


def _with_derivations(
    activations: tuple[Activation, ...], network: Network, constants: ConstantReader
) -> tuple[Activation, ...]:
    floats = {item.name: item.elem_type for item in activations}
    done: dict[str, Activation] = {}
    for item in activations:
        node = None if item.producer is None else network.nodes[item.producer]
        found = derive(node, network, constants, floats) if node and node.outputs[0] == item.name else None
        done[item.name] = _derived(item, found, node, done) if found and node else item
    return tuple(done.values())


def _derived(item: Activation, found: Derivation, node: Node, done: Mapping[str, Activation]) -> Activation:
    sources = tuple(done[name] for name in found.sources)
    axis = carried_axis(item, found, node, sources)
    if found.kind == "concat" and axis is not None:
        rank = None if item.shape is None else len(item.shape)
        join = joins_channels(node, rank, axis)
        return replace(
            item, channel_axis=axis if join is not None else None, derivation=replace(found, join_channels=bool(join))
        )
    return replace(item, channel_axis=axis, derivation=found)
