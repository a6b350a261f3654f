"""Networks that cannot be calibrated, told before any work is done on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx

from calib.core.graph import ConstantReader, Network, Node
from calib.core.graph.structure import all_graphs, read_nodes
from calib.errors import ModelError
from calib.stages.derive import plan_observations

QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger", "QLinear")
"""Beginnings of the operators that only a quantized network has."""
RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
STATELESS_NORM = 14
"""First opset whose BatchNormalization says by an attribute whether it trains; before, its extra outputs do."""


def refuse_unfit(model: onnx.ModelProto, network: Network, place: str) -> None:
    """Refuse a network that is quantized already, is in training mode, draws random numbers, or has nothing to observe.

    Args:
        model: the network.
        network: its analysis.
        place: what to call it in messages.

    Raises:
        ModelError: naming the first node of that kind.
    """
    for node in _all_nodes(model, network):
        if node.op_type.startswith(QUANTIZED):
            raise _unfit(place, node, "a float network", "start from the float network this one was made from")
        if node.op_type in RANDOM and not node.domain:
            text = "activations that follow from the input alone"
            raise _unfit(place, node, text, "export the network for inference (model.eval()), without its noise")
    constants = ConstantReader(model, network)
    for node in network.nodes:
        if _trains(node, network, constants):
            remedy = "export the network for inference: model.eval(), and training=TrainingMode.EVAL"
            raise _unfit(place, node, "a network in inference mode", remedy, " in training mode")
    observed = plan_observations(network).observed.values()
    if network.inputs and all(item.activation.producer is None for item in observed):
        raise ModelError(
            place,
            expected="a network with float activations",
            got="none that a node computes from the input",
            remedy="there is nothing to calibrate; check that this is the whole network",
        )


def _all_nodes(model: onnx.ModelProto, network: Network) -> Iterator[Node]:
    """Nodes of the network, its subgraphs and its functions."""
    yield from network.nodes
    for graph in list(all_graphs(model.graph))[1:]:
        yield from read_nodes(graph)
    for function in model.functions:
        yield from _function_nodes(function.node)


def _function_nodes(nodes: Iterable[onnx.NodeProto]) -> Iterator[Node]:
    for graph in all_graphs(onnx.GraphProto(node=nodes)):
        yield from read_nodes(graph)


def _trains(node: Node, network: Network, constants: ConstantReader) -> bool:
    if node.domain or node.op_type not in {"BatchNormalization", "Dropout"}:
        return False
    if network.opset < 7:
        return not node.attributes.get("is_test", 0)
    if node.op_type == "Dropout":
        return bool(node.input(2)) and constants.scalar(node.input(2)) == 1.0
    if network.opset < STATELESS_NORM:
        return any(node.outputs[1:])
    return bool(node.attributes.get("training_mode", 0))


def _unfit(place: str, node: Node, expected: str, remedy: str, how: str = "") -> ModelError:
    return ModelError(place, expected=expected, got=f"{node.op_type} in it{how} (node {node.label})", remedy=remedy)
