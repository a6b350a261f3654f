"""The float network inside a Q/DQ model, and what TensorRT rejects of the model as it stands."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.core.graph import analyse
from calib.core.quantization import fake_quantize
from calib.errors import ModelError
from calib.stages.qdq import quantize_model
from calib.stages.qdqread import read_qdq
from calib.stages.qdqrules import rejected_line, tensorrt_findings
from calib.stages.qdqstrip import strip_qdq
from tests.core.formats.tables import qdq_model
from tests.graphs import feeds, minmax, model, node, run, weight

LAYERS = (
    node("Conv", "x,w1", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b"),
    node("Conv", "b,w2", "c", pads=[1, 1, 1, 1]),
    node("Add", "c,b", "d"),
    node("MaxPool", "d", "e", kernel_shape=[2, 2], strides=[2, 2]),
    node("Conv", "e,w3,bias", "y"),
)
WEIGHTS = {
    "w1": weight(4, 3, 3, 3), "w2": weight(4, 4, 3, 3, seed=1), "w3": weight(2, 4, 1, 1, seed=2),
    "bias": np.array([0.5, -0.25], np.float32),
}  # fmt: skip


@pytest.fixture(scope="module")
def floating() -> onnx.ModelProto:
    return model(LAYERS, {"x": ("N", 3, 8, 8)}, ["y"], WEIGHTS, opset=17)


def quantized(floating: onnx.ModelProto) -> onnx.ModelProto:
    return quantize_model(floating, minmax(floating, feeds(floating))).model


def stored(made: onnx.ModelProto, dtype: type = np.int8) -> onnx.ModelProto:
    """Store weights as integers, as ONNX Runtime and torchao do: the Q of each weight folded away."""
    values = {item.name: numpy_helper.to_array(item) for item in made.graph.initializer}
    folded = [item for item in made.graph.node if item.op_type == "QuantizeLinear" and item.input[0] in values]
    for item in folded:
        scale = values[item.input[1]].reshape([-1, 1, 1, 1])
        shift = 128 if dtype == np.uint8 else 0
        integers = np.clip(np.rint(values[item.input[0]] / scale), -128, 127).astype(np.int16) + shift
        made.graph.initializer.append(numpy_helper.from_array(integers.astype(dtype), item.output[0]))
        zero = numpy_helper.from_array(np.full(scale.size, shift, dtype), f"{item.output[0]}_z")
        made.graph.initializer.append(zero)
        next(use for use in made.graph.node if item.output[0] in use.input).input[2] = zero.name
        made.graph.node.remove(item)
    return made


def test_what_was_put_in_comes_out_again_to_the_byte(floating):
    found = strip_qdq(quantized(floating))
    assert [item.SerializeToString() for item in found.model.graph.node] == [
        item.SerializeToString() for item in floating.graph.node
    ]
    stripped, wanted = ({item.name: item for item in made.graph.initializer} for made in (found.model, floating))
    assert stripped == wanted
    assert set(found.quantized) == {"x", "w1", "b", "w2"}
    assert found.uses == {("n_a", 0), ("n_a", 1), ("n_c", 0), ("n_c", 1), ("n_d", 1)}


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_stored_integers_come_out_as_what_they_stand_for_and_go_back_in_exactly(floating, dtype):
    first = quantized(floating)
    scales = {item.name: item.scales for item in read_qdq(first, "m").weights}
    made = stored(first, dtype)
    found, table = strip_qdq(made), read_qdq(made, "m")
    assert len(found.restored) == 2
    values = {item.name: numpy_helper.to_array(item) for item in found.model.graph.initializer}
    for name, root in (("w1", "w1_quantized"), ("w2", "w2_quantized")):
        np.testing.assert_array_equal(values[root], fake_quantize(WEIGHTS[name], scales[name], 0))
    assert table.weights or dtype == np.uint8
    feed = {"x": feeds(floating)["x"]}
    given = {item.name: item for item in table.weights if item.follows_weight is False}
    again = quantize_model(found.model, {item.name: item.amax for item in table}, weights=given).model
    np.testing.assert_array_equal(run(again, feed)[0], run(made, feed)[0])


def test_onnx_runtimes_models_get_their_names_back(tmp_path, floating):
    quant = pytest.importorskip("onnxruntime.quantization")
    onnx.save(floating, tmp_path / "f.onnx")

    class Reader(quant.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [feeds(floating, seed=seed) for seed in (1, 2)]

        def get_next(self):
            return self.left.pop() if self.left else None

    quant.quantize_static(str(tmp_path / "f.onnx"), str(tmp_path / "q.onnx"), Reader(), per_channel=True)
    made = onnx.load(tmp_path / "q.onnx")
    found, table = strip_qdq(made), read_qdq(made, "q")
    assert {item.name for item in found.model.graph.output} == {"y"}
    assert {"w1", "w2", "w3"} == set(found.restored)
    assert found.biases == ("bias",)
    activations = {item.name for item in analyse(found.model).activations}
    assert set(table.ranges) <= activations
    assert {item.name for item in table.weights} == {"w1", "w2", "w3"}
    kinds = {item.code for item in tensorrt_findings(made)}
    assert {"trt_zero_point", "trt_bias"} <= kinds
    assert found.activated == ("b",)  # ONNX Runtime took the Relu out: its quantizer begins at 0
    feed = feeds(floating, seed=1)
    wanted = run(floating, feed)[0]
    assert np.abs(run(found.model, feed)[0] - wanted).max() < 0.03 * np.abs(wanted).max()
    onnx.checker.check_model(found.model, full_check=True)


def test_a_quantized_graph_output_keeps_its_name():
    extra = [
        helper.make_node("QuantizeLinear", ["y0", "s", "z"], ["yq"], "yQ"),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"], "yD"),
    ]
    made = qdq_model(0.5, extra=tuple(extra))
    made.graph.node[4].output[0] = "y0"
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8]))
    found = strip_qdq(made).model
    assert [item.op_type for item in found.graph.node] == ["Conv", "Identity"]
    assert found.graph.output[0].name == "y"
    onnx.checker.check_model(found)


def test_integers_that_only_move_between_q_and_dq_move_as_floats():
    made = qdq_model(0.5)
    made.graph.node.insert(1, helper.make_node("MaxPool", ["xq"], ["xp"], "pool", kernel_shape=[2, 2], strides=[2, 2]))
    made.graph.node[2].input[0] = "xp"
    found = strip_qdq(made).model
    assert [item.op_type for item in found.graph.node] == ["MaxPool", "Conv"]
    assert list(found.graph.node[0].input) == ["x"]
    assert list(found.graph.node[1].input) == ["xp", "w"]
    assert read_qdq(made, "m").ranges["x"].scale == 0.5


def test_arithmetic_on_integers_is_refused_by_node():
    made = qdq_model(0.5)
    made.graph.node.insert(1, helper.make_node("Add", ["xq", "xq"], ["xs"], "sum"))
    made.graph.node[2].input[0] = "xs"
    with pytest.raises(ModelError, match="xQ"):
        strip_qdq(made)
    dangling = qdq_model(0.5, extra=(helper.make_node("QuantizeLinear", ["y", "s", "z"], ["yq"], "yQ"),))
    with pytest.raises(ModelError, match="yQ"):
        strip_qdq(dangling)
    assert {item.code for item in tensorrt_findings(dangling)} == {"trt_unpaired"}


def test_subgraphs_read_the_float_tensor():
    branch = helper.make_graph([node("Relu", "xd", "r")], "b", [], [helper.make_tensor_value_info("r", 1, None)])
    extra = helper.make_node("If", ["flag"], ["z1"], "if", then_branch=branch, else_branch=branch)
    made = qdq_model(0.5, extra=(extra,))
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "flag"))
    made.graph.output.append(helper.make_tensor_value_info("z1", TensorProto.FLOAT, None))
    found = strip_qdq(made).model
    inner = found.graph.node[-1].attribute[0].g.node[0]
    assert list(inner.input) == ["x"]


def computed_scale() -> onnx.ModelProto:
    made = qdq_model(0.5)
    made.graph.node.insert(0, helper.make_node("ReduceMax", ["x"], ["s2"], keepdims=0))
    made.graph.node[1].input[1] = made.graph.node[2].input[1] = "s2"
    return made


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: qdq_model(0.5, 0, dtype=np.uint8), "trt_type"),
        (lambda: qdq_model(0.5, 0, dtype=np.int16), "trt_type"),
        (lambda: qdq_model(0.5, 3), "trt_zero_point"),
        (lambda: qdq_model(0.5, 0, dtype=np.float32), "trt_zero_type"),
        (lambda: qdq_model(0.0), "trt_scale"),
        (lambda: qdq_model(float("inf")), "trt_scale"),
        (lambda: qdq_model(np.array([0.5, 0.25, 0.125]), np.zeros(3)), "trt_activation_axis"),
        (lambda: half_scale(17), "trt_scale_type"),
        (lambda: half_scale(17), "trt_opset"),
        (lambda: other_axis(1), "trt_weight_axis"),
        (lambda: other_axis(None), "trt_axis_missing"),
        (computed_scale, "trt_computed_scale"),
    ],
)  # fmt: skip
def test_each_rule_of_tensorrt_has_its_finding(make, code):
    found = {item.code: item for item in tensorrt_findings(make())}
    assert found[code].severity == "error"
    assert found[code].remedy
    assert "TensorRT rejects" in rejected_line(tuple(found.values()))


def half_scale(opset: int) -> onnx.ModelProto:
    made = qdq_model(0.5)
    next(item for item in made.graph.initializer if item.name == "s").CopyFrom(
        numpy_helper.from_array(np.float16(0.5), "s")
    )
    made.opset_import[0].version = opset
    return made


def other_axis(axis: int | None) -> onnx.ModelProto:
    made = qdq_model(0.5)
    for item in made.graph.node[2:4]:
        del item.attribute[:]
        if axis is not None:
            item.attribute.append(helper.make_attribute("axis", axis))
    return made


def test_our_own_models_break_no_rule(floating):
    assert tensorrt_findings(quantized(floating)) == ()
    assert tensorrt_findings(floating) == ()
    assert rejected_line(()) == ""


@pytest.mark.parametrize(
    ("zero", "scale", "operators"),
    [
        (-128, 0.02, ["Conv", "Relu", "Relu", "Conv"]),
        (-128, 6 / 255, ["Conv", "Clip", "Relu", "Conv"]),
        (-100, 0.02, ["Conv", "Relu", "Conv"]),
        (0, 0.02, ["Conv", "Relu", "Conv"]),
    ],
)
def test_a_relu_that_a_zero_point_had_replaced_is_put_back_for_its_readers_alone(zero, scale, operators):
    """Two layers; the first one's output is quantized for the second, and read as it is by a Relu beside it."""
    pair = [
        helper.make_node("QuantizeLinear", ["a", "s", "z"], ["aq"], "aQ"),
        helper.make_node("DequantizeLinear", ["aq", "s", "z"], ["ad"], "aD"),
    ]
    nodes = [node("Conv", "x,w", "a"), *pair, node("Relu", "a", "r"), node("Conv", "ad,v", "y")]
    stored_values = {
        "w": weight(4, 3, 1, 1), "v": weight(2, 4, 1, 1), "s": np.float32(scale), "z": np.asarray(zero, np.int8)
    }  # fmt: skip
    made = model(nodes, {"x": (1, 3, 8, 8)}, ["y", "r"], stored_values)
    found = strip_qdq(made)
    assert sorted(item.op_type for item in found.model.graph.node) == sorted(operators)
    feed = {"x": np.random.default_rng(0).normal(0, 0.1, (1, 3, 8, 8)).astype(np.float32)}
    for ours, theirs in zip(run(found.model, feed), run(made, feed), strict=True):
        assert np.abs(ours - theirs).max() <= 4 * scale * np.abs(stored_values["v"]).sum()
    assert bool(found.activated) == (zero == -128)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16])
def test_stored_integers_come_out_in_the_float_type_of_their_scale(kind):
    scale = helper.make_tensor("s", kind, [4], [0.5, 0.25, 0.125, 1.0])
    nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["wd"], "wD", axis=0), node("Conv", "x,wd", "y")]
    integers = np.arange(-6, 6, dtype=np.int8).reshape(4, 3, 1, 1)
    made = model(nodes, {"x": (1, 3, 4, 4)}, ["y"], {"w": integers}, opset=21, elem_type=kind)
    made.graph.initializer.append(scale)
    (found,) = strip_qdq(made).model.graph.initializer
    assert (found.name, found.data_type) == ("w", kind)
    values = np.asarray(numpy_helper.to_array(found), np.float32).ravel()
    np.testing.assert_array_equal(values, integers.ravel() * np.repeat([0.5, 0.25, 0.125, 1.0], 3))
