"""Raising the operator set changes nothing that the network computes, and nothing else of the file."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from calib.core.graph import analyse
from calib.edges.models import load_model
from calib.errors import ModelError
from calib.stages.convert_opset import convert_opset, opset_of
from tests.graphs import feeds, model, node, run, weight

X = {"x": (1, 3, 8, 8)}
SCALES = {"s": np.array([1, 1, 2, 1.5], np.float32)}
ONES = {"s": np.ones(3, np.float32)}


def constant(name, value):
    return node("Constant", "", name, value=helper.make_tensor(name, TensorProto.FLOAT, [1], [value]))


CASES = {
    "softmax flattens (A1-29)": ([node("Softmax", "x", "y", axis=1)], {}, 11),
    "logsoftmax flattens": ([node("LogSoftmax", "x", "y", axis=2)], {}, 12),
    "squeeze": ([node("ReduceMean", "x", "m", axes=[2, 3]), node("Squeeze", "m", "y", axes=[2, 3])], {}, 11),
    "unsqueeze": ([node("Unsqueeze", "x", "y", axes=[0])], {}, 7),
    "upsample linear": ([node("Upsample", "x,s", "y", mode="linear")], SCALES, 9),
    "upsample nearest": ([node("Upsample", "x,s", "y", mode="nearest")], SCALES, 9),
    "upsample attribute": ([node("Upsample", "x", "y", mode="nearest", scales=[1.0, 1, 2, 1.5])], {}, 7),
    "resize linear": ([node("Resize", "x,s", "y", mode="linear")], SCALES, 10),
    "resize nearest down": ([node("Resize", "x,s", "y")], {"s": np.array([1, 1, 0.6, 0.6], np.float32)}, 10),
    "clip": ([node("Clip", "x", "y", min=-0.5, max=0.5)], {}, 9),
    "pad": ([node("Pad", "x", "y", pads=[0, 0, 1, 1, 0, 0, 2, 2], value=0.5)], {}, 9),
    "slice": ([node("Slice", "x", "y", starts=[1], ends=[3], axes=[2])], {}, 9),
    "split": ([node("Split", "x", "a,b", axis=2, split=[3, 5]), node("Concat", "b,a", "y", axis=2)], {}, 11),
    "reduce": ([node("ReduceSum", "x", "y", axes=[1])], {}, 11),
    "dropout": ([node("Dropout", "x", "y", ratio=0.5)], {}, 9),
    "batch norm": ([node("BatchNormalization", "x,s,s,s,s", "y")], ONES, 7),
    "instance norm": ([node("InstanceNormalization", "x,s,s", "y")], ONES, 7),
    "average pool": ([node("AveragePool", "x", "y", kernel_shape=[3, 3], pads=[1, 1, 1, 1])], {}, 7),
    "gemm": ([node("Flatten", "x", "f"), node("Gemm", "f,w,b", "y")], {"w": weight(192, 4), "b": weight(4)}, 7),
}


@pytest.mark.parametrize("target", [13, 19])
@pytest.mark.parametrize("case", CASES)
def test_converted_networks_compute_the_same(case, target):
    nodes, weights, opset = CASES[case]
    graph = model(nodes, X, ["y"], weights, opset=opset)
    before = graph.SerializeToString()
    converted = convert_opset(graph, target)
    assert graph.SerializeToString() == before
    assert opset_of(converted) == target
    onnx.checker.check_model(converted, full_check=True)
    values = feeds(graph)
    np.testing.assert_allclose(run(converted, values)[0], run(graph, values)[0], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "path",
    [
        "cases/models/selfie_nhwc_opset11.onnx",
        "cases/models/sinet_softmax_opset12.onnx",
        "cases/models/twinlitenet_opset14.onnx",
    ],
)
@pytest.mark.parametrize("target", [13, 19])
def test_real_networks_compute_the_same(shared, path, target):
    graph = load_model(shared / path)
    converted = convert_opset(graph, target)
    values = feeds(graph, scale=0.5)
    for one, other in zip(run(converted, values), run(graph, values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    onnx.checker.check_model(converted, full_check=True)


def test_everything_else_is_kept():
    nodes = [node("Conv", "x,w", "c"), node("Clip", "c", "y", min=0.0, max=6.0)]
    nodes[0].doc_string = "the first"
    nodes[1].doc_string = "the second"
    graph = model(nodes, {**X, "w": (64, 3, 3, 3)}, ["y"], {"w": weight(64, 3, 3, 3)}, opset=11 - 1)
    graph.doc_string, graph.producer_name, graph.graph.doc_string = "about", "maker", "inner"
    helper.set_model_props(graph, {"a": "b"})
    graph.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 64, 6, 6]))
    converted = convert_opset(graph, 13)
    assert converted.graph.node[0] == graph.graph.node[0]
    clip = next(item for item in converted.graph.node if item.op_type == "Clip")
    assert (clip.name, clip.doc_string) == ("n_y", "the second")
    assert converted.graph.input == graph.graph.input
    assert converted.graph.initializer[0] == graph.graph.initializer[0]
    assert converted.graph.value_info == graph.graph.value_info
    assert converted.metadata_props == graph.metadata_props
    assert (converted.doc_string, converted.producer_name, converted.graph.doc_string) == ("about", "maker", "inner")


def test_high_enough_stays_the_same_object_and_other_domains_keep_their_version():
    graph = model([node("Relu", "x", "y")], X, ["y"], opset=17)
    assert convert_opset(graph, 13) is graph
    custom = helper.make_node("Magic", ["x"], ["m"], domain="acme")
    other = model([custom, node("Relu", "m", "y")], X, ["y"], opset=11, opsets=[helper.make_opsetid("acme", 3)])
    converted = convert_opset(other, 13)
    assert {entry.domain: entry.version for entry in converted.opset_import} == {"": 13, "acme": 3}
    assert converted.graph.node[0] == other.graph.node[0]


def test_names_that_look_like_the_converters_do_not_clash():
    nodes = [node("Relu", "x", "_v_4"), node("Softmax", "_v_4", "_v_5", axis=1), node("Softmax", "_v_5", "y", axis=1)]
    graph = model(nodes, X, ["y"], opset=11)
    converted = convert_opset(graph, 13)
    assert len(analyse(converted).activations) >= 4
    values = feeds(graph)
    np.testing.assert_allclose(run(converted, values)[0], run(graph, values)[0], rtol=1e-6)


def test_what_cannot_be_converted_says_why():
    roi = {"r": np.zeros(0, np.float32), **SCALES}
    attributes = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    graph = model([node("Resize", "x,r,s", "y", **attributes)], X, ["y"], roi, opset=11)
    with pytest.raises(ModelError, match="tf_half_pixel_for_nn"):
        convert_opset(graph, 13)
