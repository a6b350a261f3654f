"""Casting to float16: the same answers to half's precision, sound types, and float32 where it is needed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.core.graph import analyse
from calib.stages.halve import halve
from calib.stages.qdq import quantize_model
from tests.graphs import feeds, minmax, model, node, run, weight


def plain() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x,w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b,v,c", "d"),
        node("Add", "d,b", "e"), node("Resize", "e,,s", "f", mode="linear"), node("Conv", "f,u", "out"),
    ]  # fmt: skip
    weights = {
        "w": weight(8, 3, 3, 3) / 5, "v": weight(8, 8, 1, 1, seed=1) / 5, "c": weight(8, seed=2),
        "u": weight(4, 8, 1, 1, seed=3) / 5, "s": np.array([1, 1, 2, 2], np.float32),
    }  # fmt: skip
    return model(nodes, {"x": ("N", 3, 8, 8)}, ["out"], weights)


def sound(made: onnx.ModelProto) -> onnx.ModelProto:
    onnx.checker.check_model(made)
    onnx.shape_inference.infer_shapes(made, strict_mode=True, check_type=True)
    return made


def types_of(made: onnx.ModelProto) -> dict[str, str]:
    return dict(analyse(made).elem_types)


def test_a_network_answers_the_same_to_halfs_precision() -> None:
    source, values = plain(), feeds(plain())
    made = halve(source)
    (wanted,), (found,) = run(source, values), run(sound(made.model), values)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()
    assert not np.array_equal(found, wanted)
    assert made.kept == {}
    assert len(made.half) == 6
    types = types_of(made.model)
    assert (types["x"], types["out"], types["a"], types["s"]) == ("float32", "float32", "float16", "float32")
    assert sum(item.op_type == "Cast" for item in made.model.graph.node) == 2


def test_the_source_is_unchanged_and_names_stay() -> None:
    source = plain()
    before = source.SerializeToString()
    made = halve(source).model
    assert source.SerializeToString() == before
    assert [item.name for item in made.graph.input] == ["x"]
    assert [item.name for item in made.graph.output] == ["out"]
    assert {item.name for item in plain().graph.node} <= {item.name for item in made.graph.node}


def test_qdq_runs_in_half_with_its_scales() -> None:
    source, values = plain(), feeds(plain())
    quantized = quantize_model(source, minmax(source, values), "trt11").model
    made = halve(quantized)
    (wanted,), (found,) = run(quantized, values), run(sound(made.model), values)
    assert np.abs(found - wanted).max() <= 0.03 * np.abs(wanted).max()
    types = types_of(made.model)
    for item in made.model.graph.node:
        if item.op_type == "QuantizeLinear":
            assert types[item.input[0]] == types[item.input[1]] == "float16"
    assert analyse(made.model).opset == 19


def test_scales_that_half_cannot_hold_keep_the_layer_and_its_pairs_in_float32() -> None:
    source = plain()
    small = numpy_helper.to_array(source.graph.initializer[1]).copy()
    small[3] *= 1e-5
    source.graph.initializer[1].CopyFrom(numpy_helper.from_array(small, "v"))
    quantized = quantize_model(source, minmax(source, feeds(source)), "trt11").model
    made = halve(quantized)
    types = types_of(sound(made.model))
    layer = next(item for item in made.model.graph.node if item.name == "n_d")
    assert types[layer.output[0]] == "float32"
    assert any("as small as" in reason for reason in made.kept.values())
    assert "n_a" in made.half
    values = feeds(source)
    (wanted,), (found,) = run(quantized, values), run(made.model, values)
    assert np.abs(found - wanted).max() <= 0.03 * np.abs(wanted).max()


@pytest.mark.parametrize("operator", ["Softmax", "InstanceNormalization", "ReduceMean", "Exp"])
def test_what_needs_precision_stays_in_float32(operator: str) -> None:
    inputs = "a,g,h" if operator == "InstanceNormalization" else "a"
    extra = {"axes": [2, 3]} if operator == "ReduceMean" else {}
    nodes = [node("Conv", "x,w", "a"), node(operator, inputs, "b", **extra), node("Conv", "b,v", "out")]
    weights = {
        "w": weight(4, 3, 1, 1),
        "v": weight(4, 4, 1, 1),
        "g": np.ones(4, np.float32),
        "h": np.zeros(4, np.float32),
    }
    if operator != "InstanceNormalization":
        weights = {key: weights[key] for key in ("w", "v")}
    source = model(nodes, {"x": (1, 3, 6, 6)}, ["out"], weights)
    made = halve(source)
    assert set(made.kept) == {"n_b"}
    values = feeds(source, scale=0.3)
    (wanted,), (found,) = run(source, values), run(sound(made.model), values)
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()


def test_values_that_leave_halfs_range_stay_in_float32() -> None:
    source = plain()
    made = halve(source, {"d": 40000.0})
    assert set(made.kept) == {"n_d", "n_e"}
    assert "'d' reaches 4e+04" in made.kept["n_d"]
    values = feeds(source)
    (wanted,), (found,) = run(source, values), run(sound(made.model), values)
    assert np.abs(found - wanted).max() <= 4e-3 * np.abs(wanted).max()
    large = plain()
    big = numpy_helper.to_array(large.graph.initializer[0]) * np.float32(1e6)
    large.graph.initializer[0].CopyFrom(numpy_helper.from_array(big, "w"))
    assert "n_a" in halve(large).kept


def test_outputs_that_are_read_inside_keep_name_and_type() -> None:
    nodes = [node("Conv", "x,w", "a"), node("Relu", "a", "b")]
    source = model(nodes, {"x": (1, 3, 6, 6)}, ["a", "b"], {"w": weight(4, 3, 1, 1)})
    made = halve(source).model
    types = types_of(sound(made))
    assert (types["a"], types["b"]) == ("float32", "float32")
    for wanted, found in zip(run(source, feeds(source)), run(made, feeds(source)), strict=True):
        np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())


def test_what_a_subgraph_reads_stays_in_float32() -> None:
    branch = helper.make_graph(
        [helper.make_node("Identity", ["a"], ["y"])], "then", [], [helper.make_tensor_value_info("y", 1, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["a"], ["z"])], "else", [], [helper.make_tensor_value_info("z", 1, None)]
    )
    choose = helper.make_node("If", ["flag"], ["c"], "n_c", then_branch=branch, else_branch=other)
    nodes = [node("Conv", "x,w", "a"), choose, node("Relu", "c", "out")]
    source = model(nodes, {"x": (1, 3, 6, 6)}, ["out"], {"w": weight(4, 3, 1, 1), "flag": np.array(True)})
    made = halve(source)
    assert {"n_a", "n_c"} <= set(made.kept)
    (wanted,), (found,) = run(source, feeds(source)), run(made.model, feeds(source))
    np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())


def test_constants_casts_and_shared_weights_are_followed() -> None:
    limit = helper.make_node(
        "Constant", [], ["high"], "n_high", value=numpy_helper.from_array(np.array(0.5, np.float32))
    )
    nodes = [
        node("Conv", "x,w", "a"), limit, node("Clip", "a,,high", "b"), node("Shape", "b", "s"),
        node("Cast", "s", "t", to=1), node("ReduceMax", "t", "m", keepdims=0), node("Div", "b,m", "d"),
        node("Softmax", "d", "e"), node("Conv", "e,w", "out"),
    ]  # fmt: skip
    source = model(nodes, {"x": (1, 4, 6, 6)}, ["out"], {"w": weight(4, 4, 1, 1)})
    made = halve(source)
    (wanted,), (found,) = run(source, feeds(source)), run(sound(made.model), feeds(source))
    np.testing.assert_allclose(found, wanted, atol=5e-3 * np.abs(wanted).max())


def test_custom_operators_stay_in_float32() -> None:
    custom = helper.make_node("Odd", ["a"], ["b"], "n_b", domain="my.ops")
    nodes = [node("Conv", "x,w", "a"), custom, node("Relu", "b", "out")]
    opsets = [helper.make_opsetid("my.ops", 1)]
    source = model(nodes, {"x": (1, 3, 6, 6)}, ["out"], {"w": weight(4, 3, 1, 1)}, opset=19, opsets=opsets)
    made = halve(source)
    assert made.kept["n_b"] == "custom operator"
    assert "n_a" in made.half


@pytest.mark.parametrize("name", ["deeplabv3plus_mnv2", "unetpp_se"])
def test_a_trained_network_classifies_the_same(shared, name: str) -> None:
    source = onnx.load(shared / f"models/{name}.onnx")
    values = {"image": np.random.default_rng(0).standard_normal((1, 3, 352, 480)).astype(np.float32)}
    made = halve(source)
    assert len(made.half) > 50 * max(len(made.kept), 1)
    (wanted,), (found,) = run(source, values), run(sound(made.model), values)
    assert (found.argmax(1) == wanted.argmax(1)).mean() > 0.999
