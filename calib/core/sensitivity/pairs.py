"""Pairs of a Q/DQ network that can be switched: which they are, how they reach an operand, the network without them."""

from __future__ import annotations

from collections.abc import Sequence

import onnx
from onnx import helper

from calib.core.graph import Network, Node
from calib.core.graph.naming import fresh
from calib.errors import ModelError

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"
MOVES = frozenset(
    {"Flatten", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
    | {"DepthToSpace", "SpaceToDepth"}
)
"""Operators that move values, through which a pair reaches the operand of a layer."""
INTEGER_OPERATORS = frozenset(
    {"QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger", "QLinearAdd", "QLinearConcat", "QGemm"}
)


def refuse_integers(model: onnx.ModelProto) -> None:
    """Refuse a network of integer operators.

    Raises:
        ModelError: it holds one; the node is named.
    """
    for node in model.graph.node:
        if node.op_type in INTEGER_OPERATORS:
            raise ModelError(
                f"node {node.name or node.op_type}", expected="Q/DQ pairs around float operators",
                got=f"the integer operator {node.op_type}", remedy="export the network in Q/DQ format",
            )  # fmt: skip


def with_output_nodes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Let every graph output be made by an Identity of its own, so that a pair before it has a reader to switch."""
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    makers = {name: node for node in answer.graph.node for name in node.output if name}
    taken = set(makers) | {item.name for item in (*answer.graph.input, *answer.graph.initializer)}
    for output in answer.graph.output:
        maker = makers.get(output.name)
        if maker is None or maker.op_type not in MOVES | {DEQUANTIZE}:
            continue
        inner = fresh(f"{output.name}/inner", taken)
        for node in answer.graph.node:
            _rename(node.input, output.name, inner)
            _rename(node.output, output.name, inner)
        answer.graph.node.append(helper.make_node("Identity", [inner], [output.name], name=f"output {output.name}"))
    return answer


def _rename(names: Sequence[str] | object, old: str, new: str) -> None:
    for place, name in enumerate(names):  # type: ignore[arg-type,var-annotated]
        if name == old:
            names[place] = new  # type: ignore[index]


class Pairs:
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
