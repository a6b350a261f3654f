"""Folding of batch normalisation: exact, whole, and nothing else touched."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper, numpy_helper

from calib.core.graph import analyse
from calib.core.lint.engine import lint_model
from calib.core.plan import PlacementOptions
from calib.stages.convert_opset import convert_opset
from calib.stages.equalize import equalize
from calib.stages.foldnorms import fold_norms
from calib.stages.qdq import quantize_model
from tests.graphs import feeds, minmax, model, node, run

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def norm_weights(rng, channels, dtype=np.float32):
    return {
        "gamma": rng.normal(0, 2, channels).astype(dtype),
        "beta": rng.normal(0, 1, channels).astype(dtype),
        "mean": rng.normal(0, 1, channels).astype(dtype),
        "var": rng.uniform(1e-3, 4, channels).astype(dtype),
    }


def norm(source, out="y", **attributes):
    return node("BatchNormalization", f"{source},gamma,beta,mean,var", out, **attributes)


@st.composite
def cases(draw):
    """A layer, what may stand behind it, a normalisation, and a reader."""
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    kind, group = draw(st.sampled_from(LAYERS)), draw(st.sampled_from([1, 2, 3]))
    each_in, each_out, bias = draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.booleans())
    flat = kind in {"Gemm", "MatMul"}
    group = 1 if flat else group
    inputs, outputs = each_in * group, each_out * group
    attributes: dict[str, object] = {}
    if kind == "Conv":
        shape, attributes = (outputs, each_in, 3, 3), {"group": group}
    elif kind == "ConvTranspose":
        shape, attributes = (inputs, each_out, 3, 3), {"group": group, "strides": [2, 2], "output_padding": [1, 1]}
    else:
        turned = kind == "Gemm" and draw(st.booleans())
        shape = (outputs, inputs) if turned else (inputs, outputs)
        attributes = {"transB": int(turned), "alpha": 0.5, "beta": -2.0} if kind == "Gemm" else {}
    weights = {"w": rng.normal(0, 1, shape).astype(np.float32), **norm_weights(rng, outputs)}
    operands = "x,w"
    if bias and kind != "MatMul":
        form = draw(st.sampled_from([(outputs,), (1, outputs), ()])) if kind == "Gemm" else (outputs,)
        weights["b"] = np.asarray(rng.normal(0, 1, form), np.float32)
        operands += ",b"
    nodes = [node(kind, operands, "h0", **attributes)]
    for place, step in enumerate(draw(st.lists(st.sampled_from(["Identity", "Dropout", "Add", "Sub"]), max_size=3))):
        source, made = f"h{place}", f"h{place + 1}"
        if step in {"Add", "Sub"}:
            form = draw(st.sampled_from([(), (1,), (outputs,) if flat else (outputs, 1, 1)]))
            weights[f"c{place}"] = np.asarray(rng.normal(0, 1, form), np.float32)
            turned = step == "Add" and draw(st.booleans())
            nodes.append(node(step, f"c{place},{source}" if turned else f"{source},c{place}", made))
        else:
            nodes.append(node(step, source, made))
    nodes.append(norm(nodes[-1].output[0], epsilon=draw(st.sampled_from([1e-5, 1e-3]))))
    nodes.append(node("Relu", "y", "out"))
    size = (2, inputs) if flat else (2, inputs, 5, 6)
    return model(nodes, {"x": size}, ["out"], weights, opset=13)


@settings(max_examples=120, deadline=None)
@given(cases(), st.sampled_from([9, 10, 11, 12, 13, 14, 15, 17, 18, 19, 20, 21, 22]))
def test_a_fold_computes_the_same_at_every_opset(graph, opset):
    if opset > 13:
        graph = convert_opset(graph, opset)
    elif opset < 13:
        lacks_bias = graph.graph.node[0].op_type == "Gemm" and len(graph.graph.node[0].input) == 2
        opset = max(opset, 11) if lacks_bias else opset
        graph.opset_import[0].version = opset  # none of these operators changed its meaning in between
    before = graph.SerializeToString(deterministic=True)
    folding = fold_norms(graph)
    assert graph.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(folding.model, full_check=True)
    kinds = [item.op_type for item in folding.model.graph.node]
    assert kinds in (["Conv", "Relu"], ["ConvTranspose", "Relu"], ["Gemm", "Relu"])
    assert {item.name for item in folding.model.graph.initializer} == set(folding.model.graph.node[0].input[1:])
    (wanted,), (got,) = (run(item, feeds(graph)) for item in (graph, folding.model))
    np.testing.assert_allclose(got, wanted, rtol=0, atol=1e-5 * max(1.0, float(np.abs(wanted).max())))
    assert fold_norms(folding.model).folded == ()


def layered(**changes):
    """A convolution with a normalisation, with room for something in the way."""
    rng = np.random.default_rng(3)
    return {"w": rng.normal(0, 1, (4, 3, 1, 1)).astype(np.float32), **norm_weights(rng, 4), **changes}


ADDED = [node("Conv", "x,w", "h"), node("Add", "h,c", "s"), norm("s")]


@pytest.mark.parametrize(
    ("nodes", "outputs", "changes"),
    [
        ([node("Conv", "x,w", "h"), norm("h"), node("Add", "h,y", "out")], ["out"], {}),
        ([node("Conv", "x,w", "h"), norm("h")], ["y", "h"], {}),
        ([node("Conv", "x,w", "h"), node("Relu", "h", "r"), norm("r")], ["y"], {}),
        (ADDED, ["y"], {"c": np.ones((1, 1, 5, 1), np.float32)}),
        (ADDED, ["y"], {"c": np.ones((2, 1, 1, 1), np.float32)}),
        ([node("Conv", "x,w", "h"), node("Sub", "c,h", "s"), norm("s")], ["y"], {"c": np.ones((), np.float32)}),
        ([node("Conv", "x,w", "h"), norm("h")], ["y"], {"var": -np.ones(4, np.float32)}),
        ([node("Conv", "x,w", "h"), norm("h")], ["y"],
         {"gamma": np.full(4, 3e38, np.float32), "var": np.full(4, 1e-4, np.float32)}),
        ([node("Conv", "x,w", "h"), node("Relu", "gamma", "g"), node("BatchNormalization", "h,beta,h,mean,var", "y")],
         ["y", "g"], {}),
        ([node("Conv", "x,x2", "h"), norm("h")], ["y"], {}),
    ],
    ids=["read twice", "an output", "relu between", "along the width", "an image each", "turned round", "no root",
         "overflow", "computed", "no constant weight"],
)  # fmt: skip
def test_what_cannot_be_folded_exactly_stays(nodes, outputs, changes):
    inputs = {"x": (2, 3, 5, 5), **({"x2": (4, 3, 1, 1)} if nodes[0].input[1] == "x2" else {})}
    graph = model(nodes, inputs, outputs, layered(**changes), opset=17)
    assert fold_norms(graph).model is graph


def test_training_form_and_statistics_by_position_stay():
    trains = model(
        [node("Conv", "x,w", "h"), norm("h", "y,m,v", training_mode=1)], {"x": (2, 3, 5, 5)}, ["y"], layered()
    )
    assert fold_norms(trains).folded == ()
    old = model([node("Conv", "x,w", "h"), norm("h", spatial=0)], {"x": (2, 3, 5, 5)}, ["y"], layered(), opset=7)
    assert fold_norms(old).folded == ()
    asleep = {"ratio": np.float32(0.5), "awake": np.array(True)}
    dropped = model(
        [node("Conv", "x,w", "h"), node("Dropout", "h,ratio,awake", "d"), norm("d")],
        {"x": (2, 3, 5, 5)}, ["y"], layered(**asleep),
    )  # fmt: skip
    assert fold_norms(dropped).folded == ()


def test_shared_and_computed_weights_are_folded_apart():
    """Two layers read one weight, through a Transpose; each gets its own, and what nothing reads any more goes."""
    rng = np.random.default_rng(0)
    weights = {"raw": rng.normal(0, 1, (3, 3, 1, 1)).astype(np.float32), **norm_weights(rng, 3)}
    nodes = [
        node("Transpose", "raw", "w", perm=[1, 0, 2, 3]), node("Conv", "x,w", "a"), norm("a", "an"),
        node("Conv", "an,w", "b"), norm("b", "bn"), node("Conv", "bn,w", "out"),
    ]  # fmt: skip
    graph = model(nodes, {"x": (1, 3, 4, 4)}, ["out"], weights)
    folding = fold_norms(graph)
    kinds = [item.op_type for item in folding.model.graph.node]
    assert kinds == ["Transpose", "Conv", "Conv", "Conv"]  # the last layer still reads it
    assert [item.gone for item in folding.folded] == [("a",), ("b",)]
    np.testing.assert_allclose(run(folding.model, feeds(graph))[0], run(graph, feeds(graph))[0], rtol=1e-4, atol=1e-4)
    del graph.graph.node[4:]
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("b", onnx.TensorProto.FLOAT, None))
    only = fold_norms(graph).model.graph
    assert [item.op_type for item in only.node] == ["Transpose", "Conv", "Conv"]


def test_nothing_else_of_the_file_changes():
    """Constants that were unused before stay, and so does what a subgraph or another node reads."""
    weights = layered(idle=np.ones(3, np.float32))
    nodes = [node("Conv", "x,w", "h"), norm("h"), node("Add", "y,mean4", "s"), node("Identity", "s", "out")]
    weights["mean4"] = weights.pop("mean").reshape(4, 1, 1)
    nodes.insert(0, node("Flatten", "mean4", "mean_flat", axis=0))
    nodes.insert(1, node("Reshape", "mean4,shape", "mean"))
    weights["shape"] = np.array([4])
    graph = model(nodes, {"x": (1, 3, 4, 4)}, ["out"], weights)
    graph.graph.doc_string = "kept"
    found = fold_norms(graph).model.graph
    assert [item.op_type for item in found.node] == ["Flatten", "Conv", "Add", "Identity"]
    assert {item.name for item in found.initializer} == {"w", "h_bias", "mean4", "idle"}
    assert found.doc_string == "kept"


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_the_weights_keep_their_type(dtype):
    rng = np.random.default_rng(5)
    weights = {"w": rng.normal(0, 1, (4, 3, 1, 1)).astype(dtype), **norm_weights(rng, 4, dtype)}
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = model([node("Conv", "x,w", "h"), norm("h")], {"x": (1, 3, 4, 4)}, ["y"], weights, elem_type=kind)
    found = fold_norms(graph).model
    assert {numpy_helper.to_array(item).dtype for item in found.graph.initializer} == {np.dtype(dtype)}
    # A folded weight of half precision that overflows is not folded.
    weights["gamma"], weights["var"] = np.full(4, 6e4, dtype), np.full(4, 1e-3, dtype)
    graph = model([node("Conv", "x,w", "h"), norm("h")], {"x": (1, 3, 4, 4)}, ["y"], weights, elem_type=kind)
    assert bool(fold_norms(graph).folded) == (dtype is np.float64)


def deconvolutions():
    """A decoder: transposed convolutions, one in groups, each with its normalisation, unnamed nodes."""
    rng = np.random.default_rng(1)
    weights = {
        "w0": rng.normal(0, 1, (4, 3, 3, 3)).astype(np.float32),
        "w1": rng.normal(0, 1, (4, 4, 2, 2)).astype(np.float32),
        "w2": rng.normal(0, 1, (4, 2, 2, 2)).astype(np.float32),
        "w3": rng.normal(0, 1, (2, 4, 1, 1)).astype(np.float32),
        **norm_weights(rng, 4),
    }
    nodes = [
        node("Conv", "x,w0", "a"), norm("a", "an"), node("Relu", "an", "ar"),
        node("ConvTranspose", "ar,w1", "b", strides=[2, 2]), norm("b", "bn"), node("Relu", "bn", "br"),
        node("ConvTranspose", "br,w2", "c", strides=[2, 2], group=2), norm("c", "cn"), node("Relu", "cn", "cr"),
        node("Conv", "cr,w3", "out"),
    ]  # fmt: skip
    for item in nodes:
        item.name = ""
    return model(nodes, {"x": (1, 3, 6, 6)}, ["out"], weights, opset=11)


@pytest.mark.parametrize("target", ["trt10", "trt11", "ort"])
def test_scales_of_a_qdq_network_belong_to_the_folded_weights(target):
    graph = deconvolutions()
    ranges = minmax(graph, feeds(graph))
    result = quantize_model(graph, ranges, target)
    assert "BatchNormalization" not in {item.op_type for item in result.model.graph.node}
    assert [item.code for item in result.notes].count("norm_folded") == 1
    assert not [item for item in lint_model(result.model) if "batchnorm" in item.rule.id]
    stored = {item.name: numpy_helper.to_array(item) for item in result.model.graph.initializer}
    folded = np.abs(stored["w0"]).max((1, 2, 3)) / 127
    np.testing.assert_allclose(stored["w0_scale"], folded, rtol=1e-6)
    names = {item.name for item in analyse(result.model).activations}
    assert {"an", "bn", "cn"} <= names
    assert not {"a", "b", "c"} & names


def test_equalization_goes_through_what_is_folded():
    rng = np.random.default_rng(4)
    weights = {"w": rng.normal(0, 1, (4, 3, 1, 1)), "v": rng.normal(0, 1, (2, 4, 1, 1))}
    weights = {name: value.astype(np.float32) for name, value in weights.items()} | norm_weights(rng, 4)
    weights["w"][0] *= 1000
    nodes = [node("Conv", "x,w", "h"), norm("h"), node("Relu", "y", "r"), node("Conv", "r,v", "out")]
    graph = model(nodes, {"x": (1, 3, 4, 4)}, ["out"], weights)
    assert equalize(graph).pairs == ()
    (pair,) = equalize(fold_norms(graph).model).pairs
    assert pair.tensors == ("y", "r")


def test_options_that_name_an_unnamed_layer_still_name_it():
    graph = deconvolutions()
    ranges = minmax(graph, feeds(graph))
    result = quantize_model(graph, ranges, options=PlacementOptions(float_nodes=frozenset({"Conv(a)"})))
    assert result.plan.decision("Conv(an)").reason == "excluded"
