"""What the analysis says of a network's tensors."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from calib.core.graph import ConstantReader, Derivation, analyse
from calib.edges.models import load_model
from calib.errors import ModelError
from tests.graphs import activations, feeds, model, node, weight

FLOAT = TensorProto.FLOAT
SAMPLES = (
    "models/deeplabv3plus_mnv2.onnx",
    "models/unetpp_se.onnx",
    "cases/models/selfie_nhwc_opset11.onnx",
    "cases/models/sinet_softmax_opset12.onnx",
    "cases/models/twinlitenet_opset14.onnx",
    "cases/models/unet_small_opset18.onnx",
)


def names(network):
    return [item.name for item in network.activations]


def by_name(network):
    return {item.name: item for item in network.activations}


def reasons(network):
    return {item.name: item.reason for item in network.not_covered}


def derived_from(derivation: Derivation, sources: list[np.ndarray]) -> np.ndarray:
    """Apply a derivation to the sources' elements."""
    if derivation.kind == "concat":
        return np.concatenate([item.ravel() for item in sources])
    (source,) = sources
    if derivation.kind == "clip":
        return np.clip(source, derivation.low, derivation.high)
    return {"same": source, "negate": -source, "abs": np.abs(source)}[derivation.kind]


def test_conv_relu_chain_in_network_order():
    graph = model(
        [node("Relu", "b", "y"), node("Conv", "x,w", "b")],
        {"x": ("N", 3, 8, 8)},
        ["y"],
        {"w": weight(4, 3, 1, 1)},
    )
    network = analyse(graph)
    assert names(network) == ["x", "b", "y"], "inputs first, then topological order although the file is unsorted"
    assert network.order == (1, 0)
    assert [item.channel_axis for item in network.activations] == [1, 1, 1]
    assert by_name(network)["y"].derivation == Derivation("clip", ("b",), low=0.0)
    assert network.inputs[0].shape == (None, 3, 8, 8)
    assert network.constants == {"w"}


def test_initialisers_listed_as_inputs_are_constants():
    graph = model([node("Conv", "x,w", "y")], {"x": (1, 3, 8, 8), "w": (4, 3, 1, 1)}, ["y"], {"w": weight(4, 3, 1, 1)})
    network = analyse(graph)
    assert [item.name for item in network.inputs] == ["x"]
    assert "w" in network.constants


def test_shape_arithmetic_constants_and_integers_are_named_with_their_reason():
    nodes = [
        node("Shape", "x", "shape"),
        node("Cast", "shape", "float_shape", to=FLOAT),
        node("Mul", "float_shape", "ones_scales"),
        node("Constant", "", "c", value=helper.make_tensor("c", FLOAT, [4], [1, 1, 2, 2])),
        node("Mul", "c,one", "folded"),
        node("Resize", "x,,folded", "up", mode="nearest"),
        node("Equal", "up,up", "same"),
        node("ArgMax", "up", "index", axis=1),
    ]
    graph = model(nodes, {"x": (1, 3, 8, 8)}, ["up"], {"one": np.ones(1, np.float32)})
    network = analyse(graph)
    assert names(network) == ["x", "up"]
    assert reasons(network) == {
        "shape": "integer",
        "float_shape": "shape arithmetic",
        "ones_scales": "shape arithmetic",
        "c": "constant",
        "folded": "constant",
        "same": "bool",
        "index": "integer",
    }
    np.testing.assert_array_equal(ConstantReader(graph, network).value("folded"), [1, 1, 2, 2])


def test_coordinate_grid_made_from_shape_is_an_activation():
    nodes = [
        node("Shape", "x", "shape"),
        node("Cast", "shape", "grid", to=FLOAT),
        node("Reshape", "grid,to", "plane"),
        node("Add", "x,plane", "y"),
    ]
    graph = model(nodes, {"x": (1, 4, 8, 8)}, ["y"], {"to": np.array([1, 4, 1, 1])})
    assert names(analyse(graph)) == ["x", "grid", "plane", "y"]


@pytest.mark.parametrize(
    ("nodes", "opset", "expected"),
    [
        ([node("Clip", "x", "y", min=-1.0, max=6.0)], 10, Derivation("clip", ("x",), -1.0, 6.0)),
        ([node("Clip", "x", "y", max=6.0)], 7, Derivation("clip", ("x",), None, 6.0)),
        ([node("Clip", "x,,six", "y")], 13, Derivation("clip", ("x",), None, 6.0)),
        ([node("Clip", "x,six", "y")], 13, Derivation("clip", ("x",), 6.0, None)),
        ([node("Clip", "x", "y")], 13, Derivation("clip", ("x",))),
        ([node("ReduceMax", "x", "m", keepdims=0), node("Clip", "x,,m", "y")], 13, None),
        ([node("Neg", "x", "y")], 13, Derivation("negate", ("x",))),
        ([node("Abs", "x", "y")], 13, Derivation("abs", ("x",))),
        ([node("Dropout", "x", "y", ratio=0.3)], 10, Derivation("same", ("x",))),
        ([node("Dropout", "x,,yes", "y")], 13, None),
        ([node("MaxPool", "x", "y", kernel_shape=[2, 2])], 13, None),
        ([node("Resize", "x,,scales", "y", mode="nearest")], 13, None),
        ([node("Cast", "x", "y", to=TensorProto.DOUBLE)], 13, Derivation("same", ("x",))),
        ([node("Cast", "x", "y", to=TensorProto.FLOAT16)], 13, None),
        ([node("Concat", "x,x", "y", axis=-3)], 13, Derivation("concat", ("x", "x"), join_channels=True)),
        ([node("Concat", "x,x", "y", axis=2)], 13, Derivation("concat", ("x", "x"), join_channels=False)),
        ([node("Concat", "x,fixed", "y", axis=1)], 13, None),
    ],
)
def test_derivations_are_exact_or_absent(nodes, opset, expected):
    more = [node("Conv", "x,w", "z")]
    weights = {
        "w": weight(2, 3, 1, 1),
        "six": np.float32(6),
        "yes": np.array(True),
        "scales": np.array([1, 1, 2, 2], np.float32),
        "fixed": np.zeros((1, 3, 8, 8), np.float32),
    }
    kind = TensorProto.FLOAT
    for item in nodes:
        for attribute in item.attribute:
            kind = attribute.i if attribute.name == "to" else kind
    graph = model([*nodes, *more], {"x": (1, 3, 8, 8)}, ["y"], weights, opset=opset, output_type=kind)
    assert by_name(analyse(graph))["y"].derivation == expected


def test_channel_axis_through_transpose_elementwise_and_reshape():
    nodes = [
        node("Transpose", "x", "nchw", perm=[0, 3, 1, 2]),
        node("Conv", "nchw,w", "conv"),
        node("Transpose", "conv", "nhwc", perm=[0, 2, 3, 1]),
        node("Add", "nhwc,bias", "sum"),
        node("Reshape", "sum,to", "flat"),
        node("MatMul", "flat,fc", "out"),
    ]
    weights = {
        "w": weight(4, 3, 1, 1),
        "bias": np.ones(4, np.float32),
        "to": np.array([1, 64, 4]),
        "fc": weight(4, 5),
    }
    network = analyse(model(nodes, {"x": (1, 8, 8, 3)}, ["out"], weights))
    axes = {item.name: item.channel_axis for item in network.activations}
    assert axes == {"x": 3, "nchw": 1, "conv": 1, "nhwc": 3, "sum": 3, "flat": None, "out": 2}


def test_custom_operator_output_is_left_to_the_runtime():
    custom = helper.make_node("Magic", ["x"], ["m"], domain="acme")
    graph = model(
        [custom, node("Conv", "m,w", "y"), node("Relu", "m", "r"), node("Shape", "m", "s")],
        {"x": (1, 3, 8, 8)},
        ["y"],
        {"w": weight(4, 3, 1, 1)},
        opsets=[helper.make_opsetid("acme", 1)],
    )
    network = analyse(graph)
    found = by_name(network)
    assert found["m"].elem_type is None
    assert found["y"].elem_type == "float32", "the type variable is bound by the weight"
    assert found["r"].derivation is None, "a source of unknown type derives nothing"
    assert reasons(network)["s"] == "integer"


def test_subgraphs_hide_their_tensors_and_read_outer_ones():
    branch = helper.make_graph(
        [helper.make_node("Relu", ["a"], ["inner"])], "b", [], [helper.make_empty_tensor_value_info("inner")]
    )
    nodes = [
        node("Neg", "x", "a"),
        helper.make_node("If", ["flag"], ["y"], then_branch=branch, else_branch=branch),
    ]
    graph = model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"flag": np.array(True)})
    network = analyse(graph)
    assert names(network) == ["x", "a", "y"]
    assert reasons(network)["inner"] == "inside subgraph"
    assert [(use.node, use.slot) for use in network.consumers["a"]] == [(1, -1)]
    assert "inner" in network.names


def test_float16_float64_and_odd_names():
    nodes = [
        helper.make_node("Relu", ["in put:0"], ["12"]),
        helper.make_node("Sigmoid", ["12"], ["scope/a b:0"]),
    ]
    graph = model(nodes, {"in put:0": (1, 3, 8, 8)}, ["scope/a b:0"], elem_type=TensorProto.FLOAT16)
    network = analyse(graph)
    assert [(item.name, item.elem_type) for item in network.activations] == [
        ("in put:0", "float16"),
        ("12", "float16"),
        ("scope/a b:0", "float16"),
    ]
    assert network.nodes[0].label == "Relu(12)"


def test_inference_that_fails_falls_back_to_schemas():
    graph = model(
        [node("Relu", "x", "a"), node("Reshape", "a,bad", "y"), node("Sigmoid", "y", "z")],
        {"x": (1, 3, 8, 8)},
        ["z"],
        {"bad": np.array([7, -1])},
    )
    assert names(analyse(graph)) == ["x", "a", "y", "z"]


@pytest.mark.parametrize(
    ("nodes", "text"),
    [
        ([node("Relu", "b", "a"), node("Relu", "a", "b")], "cycle"),
        ([node("Relu", "nowhere", "b")], "nothing provides"),
        ([node("Relu", "x", "b"), node("Neg", "x", "b")], "one node or initialiser"),
        ([node("Relu", "x", "b"), node("Neg", "b", "x")], "one node or initialiser"),
    ],
)
def test_broken_graphs_are_named(nodes, text):
    with pytest.raises(ModelError, match=text):
        analyse(model(nodes, {"x": (1, 3, 8, 8)}, ["b"]))


@pytest.mark.parametrize("path", SAMPLES)
def test_every_activation_of_the_samples_is_float_and_derivations_hold(shared, path):
    graph = load_model(shared / path)
    before = graph.SerializeToString()
    network = analyse(graph)
    found = activations(graph, feeds(graph, size=1))
    for item in network.activations:
        array = found[item.name]
        assert array.dtype.name == item.elem_type
        assert item.shape is None or len(item.shape) == array.ndim
        if item.derivation is not None:
            sources = [found[name] for name in item.derivation.sources]
            expected = derived_from(item.derivation, sources)
            np.testing.assert_array_equal(np.sort(array, axis=None), np.sort(expected, axis=None))
            check_channels(item, array, sources)
    produced = {name for proto in graph.graph.node for name in proto.output}
    assert produced == {item.name for item in (*network.activations, *network.not_covered)} & produced
    assert graph.SerializeToString() == before


def check_channels(item, array, sources):
    """Channel maxima of the derived tensor follow from the sources'."""
    if item.channel_axis is None or item.derivation.kind not in {"same", "concat"}:
        return

    def maxima(value, axis):
        return np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1).max(1)

    parts = [maxima(source, item.channel_axis) for source in sources if item.op_type != "Transpose"]
    if parts:
        expected = np.concatenate(parts) if item.derivation.join_channels else np.max(parts, axis=0)
        np.testing.assert_array_equal(maxima(array, item.channel_axis), expected)


def test_large_weights_do_not_enter_shape_inference():
    graph = model([node("Conv", "x,w", "y")], {"x": (1, 64, 8, 8)}, ["y"], {"w": weight(64, 64, 3, 3)})
    from calib.core.graph import inferred

    copy = inferred(graph)
    assert len(copy.SerializeToString()) < 2000
    assert analyse(graph).shapes["y"] == (1, 64, 6, 6)
