"""Nodes, their wiring and their order, from an ONNX protobuf."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import onnx

from calib.core.graph.network import Attribute, Node, Use
from calib.errors import ModelError

PLAIN_ATTRIBUTES = frozenset({"INT", "FLOAT", "STRING", "INTS", "FLOATS", "STRINGS"})


def read_nodes(graph: onnx.GraphProto) -> tuple[Node, ...]:
    """Read the nodes of the main graph, in file order."""
    return tuple(_read_node(index, proto) for index, proto in enumerate(graph.node))


def _read_node(index: int, proto: onnx.NodeProto) -> Node:
    return Node(
        index=index,
        name=proto.name,
        op_type=proto.op_type,
        domain=standard_domain(proto.domain),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
        captured=tuple(dict.fromkeys(name for graph in subgraphs(proto) for name in _captures(graph))),
        attributes=dict(_plain_attributes(proto)),
    )


def standard_domain(domain: str) -> str:
    """Write the standard domain in its one short form."""
    return "" if domain == "ai.onnx" else domain


def _plain_attributes(proto: onnx.NodeProto) -> Iterator[tuple[str, Attribute]]:
    for attribute in proto.attribute:
        if onnx.AttributeProto.AttributeType.Name(attribute.type) in PLAIN_ATTRIBUTES:
            yield attribute.name, _plain(onnx.helper.get_attribute_value(attribute))


def _plain(value: Any) -> Attribute:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, int | float):
        return value
    return tuple(_plain(item) for item in value)  # type: ignore[return-value]


def subgraphs(proto: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """List the graphs in a node's attributes (If, Loop, Scan)."""
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """List a graph and every graph inside it."""
    yield graph
    for node in graph.node:
        for inner in subgraphs(node):
            yield from all_graphs(inner)


def _captures(graph: onnx.GraphProto) -> Iterator[str]:
    """Name the outer tensors that a subgraph reads, at any depth."""
    own = {value.name for value in graph.input} | set(initializer_names(graph))
    own.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        inner = (name for sub in subgraphs(node) for name in _captures(sub))
        for name in (*node.input, *inner):
            if name and name not in own:
                yield name
    yield from (value.name for value in graph.output if value.name not in own)


def initializer_names(graph: onnx.GraphProto) -> Iterator[str]:
    """Name the initialisers, dense and sparse."""
    yield from (tensor.name for tensor in graph.initializer)
    yield from (tensor.values.name for tensor in graph.sparse_initializer)


def producers_of(nodes: Iterable[Node], roots: Iterable[str]) -> Mapping[str, int]:
    """Map every node output to its node; a tensor made twice is an error."""
    made: dict[str, int] = {}
    taken: set[str] = set()
    for name in roots:
        if name in taken:
            raise _made_twice(name, "a second initialiser or graph input of this name")
        taken.add(name)
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in made or name in taken:
                raise _made_twice(name, f"a second one, {node.label}")
            made[name] = node.index
    return made


def _made_twice(name: str, got: str) -> ModelError:
    return ModelError(
        f"tensor {name!r}",
        expected="one node or initialiser that makes it",
        got=got,
        remedy="export the model again; onnx.checker names further faults of this kind",
    )


def consumers_of(nodes: Iterable[Node]) -> Mapping[str, tuple[Use, ...]]:
    """Map every tensor to the places that read it."""
    uses: dict[str, list[Use]] = {}
    for node in nodes:
        for slot, name in enumerate(node.inputs):
            if name:
                uses.setdefault(name, []).append(Use(node.index, slot))
        for name in node.captured:
            uses.setdefault(name, []).append(Use(node.index, -1))
    return {name: tuple(places) for name, places in uses.items()}


def topological_order(nodes: tuple[Node, ...], producers: Mapping[str, int], roots: Iterable[str]) -> tuple[int, ...]:
    """Order nodes so that each follows what it reads; file order is kept wherever it already is one.

    Raises:
        ModelError: a tensor is read that nothing makes, or the nodes form a cycle.
    """
    known = set(roots)
    waiting = [0] * len(nodes)
    followers: dict[int, list[int]] = {}
    for node in nodes:
        for name in dict.fromkeys(filter(None, (*node.inputs, *node.captured))):
            if name in known:
                continue
            if name not in producers:
                raise _unmade(name, node)
            waiting[node.index] += 1
            followers.setdefault(producers[name], []).append(node.index)
    order = list(_release(waiting, followers))
    if len(order) < len(nodes):
        stuck = nodes[next(i for i, count in enumerate(waiting) if count)]
        raise ModelError(
            f"node {stuck.label}",
            expected="a graph without cycles",
            got="a node that waits for its own output",
            remedy="export the model again",
        )
    return tuple(order)


def _release(waiting: list[int], followers: Mapping[int, list[int]]) -> Iterator[int]:
    ready = [index for index, count in enumerate(waiting) if not count]
    heapq.heapify(ready)
    while ready:
        index = heapq.heappop(ready)
        yield index
        for follower in followers.get(index, ()):
            waiting[follower] -= 1
            if not waiting[follower]:
                heapq.heappush(ready, follower)


def _unmade(name: str, node: Node) -> ModelError:
    return ModelError(
        f"node {node.label}",
        expected="inputs that a node, an initialiser or a graph input provides",
        got=f"{name!r}, which nothing provides",
        remedy="export the model again, or run onnx.checker on it",
    )


def all_names(model: onnx.ModelProto) -> frozenset[str]:
    """Collect every name in use, so that a new one can avoid them all."""
    names: set[str] = set()
    for graph in all_graphs(model.graph):
        names.update(initializer_names(graph))
        names.update(value.name for value in (*graph.input, *graph.output, *graph.value_info))
        names.update(_node_names(graph.node))
    for function in model.functions:
        names.update(function.input, function.output, _node_names(function.node))
    return frozenset(names - {""})


def _node_names(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    for node in nodes:
        yield node.name
        yield from node.input
        yield from node.output


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """List every tensor stored in a model: initialisers and attributes, subgraphs and functions included."""
    for graph in all_graphs(model.graph):
        yield from graph.initializer
        yield from _attribute_tensors(graph.node)
    for function in model.functions:
        yield from _attribute_tensors(function.node)


def _attribute_tensors(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.TensorProto]:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors


def unreadable_name(model: onnx.ModelProto) -> str | None:
    """Find a name that is no UTF-8: protobuf hands such a text out as bytes. None where all are text."""
    for graph in all_graphs(model.graph):
        for text in (*initializer_names(graph), *(value.name for value in (*graph.input, *graph.output))):
            if isinstance(text, bytes):
                return repr(text)
        for node in graph.node:
            attributes = (item.name for item in node.attribute)
            for text in (node.name, node.op_type, node.domain, *node.input, *node.output, *attributes):
                if isinstance(text, bytes):
                    return repr(text)
    return None
