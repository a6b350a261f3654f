"""The float network behind a network with Q/DQ pairs: what its parts are does not depend on where the pairs stand."""

from __future__ import annotations

import onnx
from onnx import helper

from calib.core.graph import Network, Node

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear"})


def quantizes(node: Node | None) -> bool:
    """Tell whether a node is a QuantizeLinear, in the standard domain or a runtime's own."""
    return node is not None and node.op_type in QUANTIZE


def dequantizes(node: Node | None) -> bool:
    """Tell whether a node is a DequantizeLinear, in the standard domain or a runtime's own."""
    return node is not None and node.op_type in DEQUANTIZE


def without_pairs(model: onnx.ModelProto, network: Network) -> onnx.ModelProto:
    """Take the Q/DQ pairs on activations out of a network; every other node keeps its name and outputs.

    A graph output that a pair makes keeps its name: an Identity makes it. Quantized constants stay: they are
    constants all the same.
    """
    source = _sources(network)
    outputs = network.output_names
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    del bare.graph.node[:]
    for node in network.nodes:
        proto = model.graph.node[node.index]
        if dequantizes(node) and node.outputs[0] in source:
            if node.outputs[0] in outputs:
                original = source[node.outputs[0]]
                bare.graph.node.append(helper.make_node("Identity", [original], [node.outputs[0]], proto.name))
            continue
        copy = bare.graph.node.add()
        copy.CopyFrom(proto)
        copy.input[:] = [source.get(name, name) for name in node.inputs]
    _drop_unread(bare)
    return bare


def _sources(network: Network) -> dict[str, str]:
    """Map what each DequantizeLinear of a pair makes to the float tensor that its pair reads."""
    source: dict[str, str] = {}
    for index in network.order:
        node = network.nodes[index]
        maker = network.producer(node.input(0))
        if dequantizes(node) and maker is not None and quantizes(maker) and maker.input(0) not in network.constants:
            float_tensor = maker.input(0)
            source[node.outputs[0]] = source.get(float_tensor, float_tensor)
    return source


def _drop_unread(model: onnx.ModelProto) -> None:
    """Drop the QuantizeLinear nodes whose other half is gone."""
    read = {name for node in model.graph.node for name in node.input} | {item.name for item in model.graph.output}
    kept = [node for node in model.graph.node if node.op_type not in QUANTIZE or read.intersection(node.output)]
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
