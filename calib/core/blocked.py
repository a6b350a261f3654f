"""Have a network return its tensors as ONNX Runtime computes them: in blocks of channels.

On most processors ONNX Runtime convolves in a layout of its own, *NCHWc*: channels in blocks of 8 or 16, those of a
block side by side at every pixel. A tensor that has to leave the network is copied into the usual layout first, the
activation behind it runs on that copy, and what the next convolution reads is copied back. With every tensor observed
these copies cost as much as counting. Here the graph that the runtime made is rewritten so that blocks leave as they
are, and activations run on them; whoever counts values does not mind their order.

No value changes: the same convolutions and activations run on the same numbers. Lanes behind the last channel hold the
zeros that weights of padding give, and what activations make of these, as in the runtime's own fused convolutions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import onnx

from calib.core.graph.structure import all_graphs

DOMAIN = "com.microsoft.nchwc"
"""Operators of the layout (ONNX Runtime, ``core/graph/contrib_ops/nhwc_schema_defs`` and ``nchwc_schema_defs``)."""

UNARY = frozenset({
    "Abs", "Clip", "Erf", "Gelu", "HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Neg", "Relu", "Sigmoid",
    "Softsign", "Tanh",
})  # fmt: skip
"""Functions of single values that are finite at finite ones, so that lanes of padding do no harm.

Elu, Mish, Selu and Softplus are not among them: ONNX Runtime computes the last values of a tensor, which do not fill a
register, by other instructions, so that the last digit depends on where a value lies.
"""

HALF = frozenset({onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16})

BINARY = frozenset({"Add", "Max", "Min", "Mul", "Sub", "Sum"})
"""The same of several values."""


@dataclass(frozen=True)
class BlockedTensor:
    """A tensor in blocks of channels.

    Attributes:
        name: what it is called in the network.
        channels: how many it has, without padding.
    """

    name: str
    channels: int


@dataclass(frozen=True)
class _Block:
    """A tensor in blocks, and the one whose shape it has."""

    tensor: BlockedTensor
    shaped_like: str


def return_blocks(
    model: onnx.ModelProto, plain: Collection[str] = ()
) -> tuple[onnx.ModelProto, Mapping[str, BlockedTensor]]:
    """Rewrite a network so that outputs are returned in blocks wherever they are computed so.

    Args:
        model: a network as ONNX Runtime optimized it; left as it is.
        plain: outputs wanted in the usual layout.

    Returns:
        the network, and the outputs that it returns in blocks: their names, and what stands in for them. None does
        where values are rounded to half precision: whenever ONNX Runtime reads a network it drops such casts anew.
    """
    if any(_rounds_to_half(node) for inner in all_graphs(model.graph) for node in inner.node):
        return model, {}
    nodes, blocks = _rewritten(model.graph)
    found: dict[str, BlockedTensor] = {}
    for output in model.graph.output:
        block = blocks.get(output.name)
        if block is not None and output.name not in plain and block.tensor not in found.values():
            found[output.name] = block.tensor
    wanted = [found[output.name].name if output.name in found else output.name for output in model.graph.output]
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    graph = answer.graph
    del graph.node[:], graph.output[:], graph.value_info[:]
    graph.node.extend(_needed(nodes, wanted))
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    return answer, found


def _rewritten(graph: onnx.GraphProto) -> tuple[list[onnx.NodeProto], dict[str, _Block]]:
    """All nodes, activations on blocks where their inputs are there; and which tensors are there in blocks."""
    blocks: dict[str, _Block] = {}
    again: dict[str, str] = {}
    nodes: list[onnx.NodeProto] = []
    for original in graph.node:
        node = onnx.NodeProto()
        node.CopyFrom(original)
        node.input[:] = [again.get(name, name) for name in original.input]
        source = blocks.get(original.input[0]) if original.input else None
        if _reorders(node, "ReorderOutput"):
            tensor = BlockedTensor(node.input[0], _integer(node, "channels"))
            blocks[node.output[0]] = _Block(tensor, tensor.name)
        elif _reorders(node, "ReorderInput") and source is not None:
            again[node.output[0]] = source.tensor.name
        elif source is not None and _runs_on_blocks(node, blocks):
            nodes.append(_twin(node, blocks))
            tensor = BlockedTensor(nodes[-1].output[0], source.tensor.channels)
            blocks[node.output[0]] = _Block(tensor, source.shaped_like)
            node = _reorder_output(tensor, node.output[0])
        nodes.append(node)
    return nodes, blocks


def _reorders(node: onnx.NodeProto, kind: str) -> bool:
    return node.domain == DOMAIN and node.op_type == kind and not _integer(node, "channels_last")


def _integer(node: onnx.NodeProto, name: str) -> int:
    return next((attribute.i for attribute in node.attribute if attribute.name == name), 0)


def _rounds_to_half(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and _integer(node, "to") in HALF


def _runs_on_blocks(node: onnx.NodeProto, blocks: Mapping[str, _Block]) -> bool:
    """Whether a node is a function of single values that are all there in blocks."""
    if node.domain not in ("", "com.microsoft") or len(node.output) != 1:
        return False
    if node.op_type in UNARY:
        return not any(name in blocks for name in node.input[1:])
    return node.op_type in BINARY and len({_shape_of(name, blocks) for name in node.input}) == 1


def _shape_of(name: str, blocks: Mapping[str, _Block]) -> str:
    """What stands for a tensor's shape: equal only for equal ones in blocks."""
    return blocks[name].shaped_like if name in blocks else f"{name} itself"


def _twin(node: onnx.NodeProto, blocks: Mapping[str, _Block]) -> onnx.NodeProto:
    """The same node on blocks."""
    twin = onnx.NodeProto()
    twin.CopyFrom(node)
    twin.input[:] = [blocks[name].tensor.name if name in blocks else name for name in node.input]
    twin.output[:] = [f"{node.output[0]}/blocks"]
    return twin


def _reorder_output(tensor: BlockedTensor, name: str) -> onnx.NodeProto:
    """A node that copies a tensor from blocks into the usual layout."""
    return onnx.helper.make_node("ReorderOutput", [tensor.name], [name], domain=DOMAIN, channels=tensor.channels)


def _needed(nodes: list[onnx.NodeProto], wanted: Collection[str]) -> list[onnx.NodeProto]:
    """Nodes that the wanted tensors depend on, in order."""
    used = set(wanted)
    kept: list[onnx.NodeProto] = []
    for node in reversed(nodes):
        if not used.isdisjoint(node.output):
            kept.append(node)
            used.update(_reads(node))
    return kept[::-1]


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """Everything a node names, inside its subgraphs too."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _reads(inner)
            yield from (output.name for output in graph.output)
