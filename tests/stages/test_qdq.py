"""Written Q/DQ models: what they compute, what they keep, and what they do with odd graphs."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.core.graph import ConstantReader, Use, analyse
from calib.core.plan import PlacementOptions
from calib.core.quantization import DEAD_AMAX, fake_quantize, scale_from_amax, weight_amax
from calib.core.trtcache import parse, render
from calib.edges.models import load_model
from calib.errors import ModelError, StatisticsError
from calib.stages.cachefile import cache_entries
from calib.stages.foldnorms import fold_norms
from calib.stages.qdq import activation_ranges, quantize_model
from calib.types.statistics import DynamicRange
from tests.graphs import feeds, minmax, model, node, run, weight

X = {"x": (1, 8, 12, 12)}
SAMPLES = (
    "models/deeplabv3plus_mnv2.onnx",
    "models/unetpp_se.onnx",
    "cases/models/selfie_nhwc_opset11.onnx",
    "cases/models/sinet_softmax_opset12.onnx",
    "cases/models/twinlitenet_opset14.onnx",
    "cases/models/unet_small_opset18.onnx",
)
LOGITS = PlacementOptions(logits=True)


def conv(source, out, w="w", **attributes):
    return node("Conv", f"{source},{w}", out, **attributes)


def quantized(graph, options=LOGITS, target="trt11", seed=1):
    values = feeds(graph, seed=seed)
    return quantize_model(graph, minmax(graph, values), target, options), values


def stored(graph):
    return {item.name: numpy_helper.to_array(item) for item in graph.graph.initializer}


def by_op(graph, op_type):
    return [item for item in graph.graph.node if item.op_type == op_type]


def pair_on(graph, tensor):
    """Answer scale, zero point and axis of the pair that reads a tensor."""
    values = stored(graph)
    (found,) = [item for item in by_op(graph, "QuantizeLinear") if item.input[0] == tensor]
    axis = next((item.i for item in found.attribute if item.name == "axis"), None)
    return values[found.input[1]], values[found.input[2]], axis


def simulated(graph, plan, values):
    """Compute a plan's outputs without any Q/DQ node: node by node, operands fake-quantized by numpy."""
    network = analyse(graph)
    reader = ConstantReader(graph, network)
    pairs = {use: pair for pair in (*plan.activations, *plan.weights) for use in pair.uses}
    tensors = {**values, **{name: reader.value(name) for name in network.constants}}
    for index in network.order:
        proto = graph.graph.node[index]
        if proto.op_type == "Constant":
            continue
        operands = {}
        single = onnx.NodeProto()
        single.CopyFrom(proto)
        for slot, name in enumerate(proto.input):
            if name:
                single.input[slot] = f"in{slot}"
                operands[f"in{slot}"] = rounded(tensors[name], pairs.get(Use(index, slot)))
        inputs = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(item.dtype), item.shape)
            for name, item in operands.items()
        ]
        outputs = [helper.make_empty_tensor_value_info(name) for name in proto.output if name]
        part = helper.make_model(
            helper.make_graph([single], "part", inputs, outputs), opset_imports=graph.opset_import, ir_version=9
        )
        tensors.update(zip([name for name in proto.output if name], run(part, operands), strict=True))
    return [tensors[item.name] for item in network.outputs]


def rounded(value, pair):
    if pair is None:
        return np.asarray(value)
    if hasattr(pair, "axis"):
        scale = scale_from_amax(weight_amax(value, pair.axis), pair.elem_type)
        return fake_quantize(value, scale, pair.axis).astype(value.dtype)
    return fake_quantize(value, scale_from_amax(pair.amax, pair.elem_type)).astype(value.dtype)


NETS = {
    "residual": (
        [
            conv("x", "a", pads=[1, 1, 1, 1]),
            node("Relu", "a", "r"),
            conv("r", "b", pads=[1, 1, 1, 1]),
            node("Add", "b,r", "y"),
        ],
        {"w": weight(8, 8, 3, 3)},
    ),
    "depthwise separable": (
        [conv("x", "a", "dw", group=8), node("HardSwish", "a", "r"), conv("r", "y", "pw")],
        {"dw": weight(8, 1, 3, 3), "pw": weight(6, 8, 1, 1)},
    ),
    "transposed": (
        [conv("x", "a", "pw"), node("ConvTranspose", "a,t,bias", "y", strides=[2, 2])],
        {"pw": weight(6, 8, 1, 1), "t": weight(6, 4, 2, 2), "bias": weight(4)},
    ),
    "pool pad concat": (
        [
            node("Relu", "x", "r"),
            node("MaxPool", "r", "m", kernel_shape=[2, 2], strides=[2, 2]),
            node("Resize", "m,,up", "u", mode="linear"),
            node("Concat", "r,u", "cat", axis=1),
            node("Pad", "cat,pads", "p"),
            conv("p", "c"),
            conv("c", "y", "pw"),
        ],
        {
            "up": np.array([1, 1, 2, 2], np.float32),
            "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
            "w": weight(8, 16, 3, 3),
            "pw": weight(6, 8, 1, 1),
        },
    ),
    "attention": (
        [
            node("Reshape", "x,to", "f"),
            node("Transpose", "f", "t", perm=[0, 2, 1]),
            node("MatMul", "t,m", "q"),
            node("MatMul", "q,f", "qk"),
            node("Softmax", "qk", "s", axis=-1),
            node("MatMul", "s,q", "y"),
        ],
        {"to": np.array([1, 8, 144]), "m": weight(8, 8)},
    ),
    "gemm": (
        [node("Flatten", "x", "f"), node("Gemm", "f,m,bias", "y", transB=1)],
        {"m": weight(5, 8 * 144), "bias": weight(5)},
    ),
}


@pytest.mark.parametrize("options", [LOGITS, PlacementOptions(logits=True, per_channel=False, dedicated=True)])
@pytest.mark.parametrize("name", NETS)
def test_written_models_compute_the_plan(name, options):
    nodes, weights = NETS[name]
    graph = model(nodes, X, ["y"], weights)
    before = graph.SerializeToString()
    result, values = quantized(graph, options)
    assert graph.SerializeToString() == before
    assert result.plan.activations
    onnx.checker.check_model(result.model, full_check=True)
    (expected,) = simulated(graph, result.plan, values)
    (found,) = run(result.model, values)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())
    (plain,) = run(graph, values)
    error = np.abs(found - plain).max() / np.abs(plain).max()
    assert 0 < error < 0.3, "it differs from float, and little"


@pytest.mark.parametrize(
    ("path", "target"), [*((path, "trt11") for path in SAMPLES), (SAMPLES[-1], "trt10"), (SAMPLES[-1], "ort")]
)
def test_real_models_stay_valid_and_close(shared, path, target):
    graph = load_model(shared / path)
    before = graph.SerializeToString()
    values = feeds(graph, size=1)
    result = quantize_model(graph, minmax(graph, values), target)
    assert graph.SerializeToString() == before
    onnx.checker.check_model(result.model, full_check=True)
    folded = fold_norms(graph).model
    check_kept(folded, result.model)
    check_trt_rules(result.model)
    statuses = {item.node for item in result.plan.decisions}
    network = analyse(folded)
    made = {network.producers[item.name] for item in network.activations if item.producer is not None}
    assert len(statuses) >= len(made), "every node that makes an activation has a verdict"
    outputs = run(result.model, values)
    plain = run(graph, values)
    if "selfie" not in path:  # random pixels saturate that network's sigmoid
        for found, expected in zip(outputs, plain, strict=True):
            assert np.square(found - expected).sum() < 0.05 * np.square(expected).sum()


def check_kept(before, after):
    """Everything but the pairs, the operator set and the rewired inputs is as it was."""
    assert after.metadata_props == before.metadata_props
    assert (after.producer_name, after.doc_string, after.graph.name) == (
        before.producer_name,
        before.doc_string,
        before.graph.name,
    )
    stored = {item.name for item in before.graph.initializer}
    assert list(after.graph.input) == [item for item in before.graph.input if item.name not in stored]
    assert after.graph.output == before.graph.output
    assert after.graph.value_info == before.graph.value_info
    assert after.graph.initializer[: len(before.graph.initializer)] == list(before.graph.initializer)
    names = {item.output[0]: (item.op_type, item.name, item.doc_string) for item in after.graph.node}
    for item in before.graph.node:
        assert names[item.output[0]] == (item.op_type, item.name, item.doc_string)


def check_trt_rules(graph):
    """INT8, zero point 0, scales finite and > 0, axis wherever there are several scales, per-tensor activations."""
    values = stored(graph)
    made = {name for item in graph.graph.node for name in item.output}
    constants = analyse(graph).constants
    for item in graph.graph.node:
        if item.op_type not in {"QuantizeLinear", "DequantizeLinear"}:
            continue
        scale, zero = values[item.input[1]], values[item.input[2]]
        assert zero.dtype == np.int8
        assert zero.shape == scale.shape
        assert not zero.any()
        assert np.isfinite(scale).all()
        assert (scale > 0).all()
        axes = [attribute.i for attribute in item.attribute if attribute.name == "axis"]
        assert len(axes) == scale.ndim
        assert scale.ndim == 0 or item.input[0] in constants
    biases = [name for item in graph.graph.node if item.op_type == "Conv" for name in item.input[2:]]
    assert all(name not in made or "dequantized" not in name for name in biases)


def test_a5_1_transposed_convolution_has_a_scale_per_output_channel():
    graph = model([node("ConvTranspose", "x,t", "y")], {"x": (1, 3, 8, 8)}, ["y"], {"t": weight(3, 64, 3, 3)})
    options = PlacementOptions(logits=True, conv_transpose="axis")
    result, _ = quantized(graph, options)
    scale, _, axis = pair_on(result.model, "t")
    assert (scale.shape, axis) == ((64,), 1)
    expected = np.abs(stored(graph)["t"]).max(axis=(0, 2, 3)) / 127
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    scale, _, axis = pair_on(quantized(graph)[0].model, "t")
    assert (scale.shape, axis) == ((), None)


def test_a5_3_depthwise_transposed_convolution():
    nodes = [node("ConvTranspose", "x,t", "y", group=8, strides=[2, 2])]
    graph = model(nodes, X, ["y"], {"t": weight(8, 1, 2, 2)})
    result, values = quantized(graph, PlacementOptions(logits=True, conv_transpose="axis"), "ort")
    scale, _, axis = pair_on(result.model, "t")
    assert (scale.shape, axis) == ((8,), 0)
    np.testing.assert_allclose(run(result.model, values)[0], simulated(graph, result.plan, values)[0], rtol=1e-5)


def test_a5_4_bias_stays_float_and_tiny_weight_scales_stay_usable():
    w = weight(4, 8, 1, 1)
    w[0] = 1e-8
    bias = np.full(4, 5.0, np.float32)
    graph = model([node("Conv", "x,w,b", "y")], X, ["y"], {"w": w, "b": bias})
    result, values = quantized(graph)
    (proto,) = by_op(result.model, "Conv")
    assert proto.input[2] == "b"
    assert not [item for item in result.model.graph.initializer if item.data_type == TensorProto.INT32]
    np.testing.assert_allclose(run(result.model, values)[0][0, 0], 5.0, rtol=1e-5)


def test_a5_6_channels_of_very_different_range_keep_their_resolution():
    w = weight(8, 1, 3, 3)
    w *= (np.logspace(0, 3, 8) / np.abs(w).max(axis=(1, 2, 3))).reshape(8, 1, 1, 1).astype(np.float32)
    graph = model([conv("x", "y", group=8)], X, ["y"], {"w": w})
    result, values = quantized(graph)
    (plain,) = run(graph, values)
    (found,) = run(result.model, values)
    narrow = np.abs(found - plain)[0, 0].max() / np.abs(plain)[0, 0].max()
    coarse, _ = quantized(graph, PlacementOptions(logits=True, per_channel=False))
    lost = np.abs(run(coarse.model, values)[0] - plain)[0, 0].max() / np.abs(plain)[0, 0].max()
    assert narrow < 0.05
    assert lost > 0.5


def test_a5_7_opset_is_raised_for_per_channel_scales():
    graph = model([conv("x", "c"), node("Softmax", "c", "y", axis=1)], X, ["y"], {"w": weight(8, 8, 3, 3)}, opset=12)
    result, values = quantized(graph)
    assert result.opset == (12, 13)
    assert [note.code for note in result.notes if "opset" in note.code] == ["opset_raised"]
    assert pair_on(result.model, "w")[2] == 0
    onnx.checker.check_model(result.model, full_check=True)
    np.testing.assert_allclose(run(result.model, values)[0], run(graph, values)[0], atol=0.05)


UNCONVERTIBLE = {"mode": "nearest", "coordinate_transformation_mode": "tf_half_pixel_for_nn"}


def test_a5_7_falls_back_to_per_tensor_and_says_which_when_conversion_fails():
    nodes = [node("Resize", "x,r,s", "u", **UNCONVERTIBLE), conv("u", "y")]
    weights = {"w": weight(8, 8, 3, 3), "r": np.zeros(0, np.float32), "s": np.array([1, 1, 2, 2], np.float32)}
    graph = model(nodes, X, ["y"], weights, opset=11)
    result, values = quantized(graph)
    assert result.opset == (11, 11)
    assert not result.plan.per_channel
    scale, _, axis = pair_on(result.model, "w")
    assert (scale.shape, axis) == ((), None)
    (note,) = [note for note in result.notes if note.code == "per_tensor_fallback"]
    assert "opset 11" in note.text
    assert "tf_half_pixel_for_nn" in note.text
    onnx.checker.check_model(result.model, full_check=True)
    assert np.isfinite(run(result.model, values)[0]).all()


def test_a5_7_float16_that_cannot_be_raised_is_an_error():
    nodes = [node("Resize", "x,r,s", "u", **UNCONVERTIBLE), conv("u", "y")]
    weights = {
        "w": weight(8, 8, 3, 3, dtype=np.float16),
        "r": np.zeros(0, np.float32),
        "s": np.array([1, 1, 2, 2], np.float32),
    }
    graph = model(nodes, X, ["y"], weights, opset=11, elem_type=TensorProto.FLOAT16)
    with pytest.raises(ModelError, match="opset 19"):
        quantize_model(graph, {"x": 1.0, "u": 1.0})


@pytest.mark.parametrize("via", ["Transpose", "Identity", "Reshape", "Unsqueeze", "Constant"])
def test_a5_9_weights_behind_other_nodes_have_the_axis_of_the_convolution(via):
    base = weight(6, 8, 3, 3)
    made = {
        "Transpose": ([node("Transpose", "v", "w", perm=[1, 0, 2, 3])], {"v": base.transpose(1, 0, 2, 3).copy()}),
        "Identity": ([node("Identity", "v", "w")], {"v": base}),
        "Reshape": ([node("Reshape", "v,s", "w")], {"v": base.reshape(48, 9), "s": np.array([6, 8, 3, 3])}),
        "Unsqueeze": ([node("Unsqueeze", "v,s", "w")], {"v": base[:, :, 0, 0].copy(), "s": np.array([2, 3])}),
        "Constant": ([node("Constant", "", "w", value=numpy_helper.from_array(base))], {}),
    }
    nodes, weights = made[via]
    graph = model([*nodes, conv("x", "y")], X, ["y"], weights)
    result, values = quantized(graph)
    scale, _, axis = pair_on(result.model, "w")
    assert (scale.shape, axis) == ((6,), 0)
    expected = np.abs(base[:, :, :1, :1] if via == "Unsqueeze" else base).max(axis=(1, 2, 3)) / 127
    np.testing.assert_allclose(scale, expected, rtol=1e-6)
    np.testing.assert_allclose(
        run(result.model, values)[0], simulated(graph, result.plan, values)[0], rtol=1e-5, atol=1e-4
    )


def test_a5_10_new_names_avoid_every_name_subgraphs_included():
    inner = helper.make_graph(
        [helper.make_node("Relu", ["c"], ["x_scale"], name="x_QuantizeLinear")],
        "inner",
        [],
        [helper.make_tensor_value_info("x_scale", TensorProto.FLOAT, None)],
    )
    nodes = [
        conv("x", "x_quantized"),
        node("Identity", "x_quantized", "c"),
        helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Conv", ["y", "w", "b"], ["b0"]),
        helper.make_node("Conv", ["b0", "w", "b"], ["z"]),
    ]
    weights = {"w": weight(8, 8, 1, 1), "b": weight(8), "flag": np.array(True), "x_zero_point": np.int8(3)}
    graph = model(nodes, X, ["z"], weights)
    result, values = quantized(graph)
    produced = [name for item in result.model.graph.node for name in item.output]
    labels = [item.name for item in result.model.graph.node if item.name]
    listed = [item.name for item in result.model.graph.initializer]
    assert len(set(produced)) == len(produced)
    assert len(set(labels)) == len(labels)
    assert len(set(listed)) == len(listed)
    assert not {"x_scale", "x_quantized"} & (set(listed) | (set(produced) - {"x_quantized"}))
    assert {item.input[2] for item in by_op(result.model, "Conv")[1:]} == {"b"}, "a shared bias stays shared"
    assert np.isfinite(run(result.model, values)[0]).all()


def test_a5_12_scales_are_validated_and_pairs_can_be_dedicated():
    graph = model([conv("x", "a"), conv("x", "b"), node("Mul", "a,b", "y")], X, ["y"], {"w": weight(8, 8, 1, 1)})
    tiny = quantize_model(graph, {"x": 1e-12 * 127}, options=LOGITS)
    assert pair_on(tiny.model, "x")[0] == np.float32(1e-12)
    for amax in (float("nan"), float("inf"), -1.0):
        with pytest.raises(StatisticsError):
            quantize_model(graph, {"x": amax}, options=LOGITS)
    one, _ = quantized(graph)
    two, values = quantized(graph, PlacementOptions(logits=True, dedicated=True))
    assert len([item for item in by_op(one.model, "QuantizeLinear") if item.input[0] == "x"]) == 1
    assert len([item for item in by_op(two.model, "QuantizeLinear") if item.input[0] == "x"]) == 2
    np.testing.assert_array_equal(run(one.model, values)[0], run(two.model, values)[0])


def test_a5_13_a5_15_notes_name_wide_concats_and_additions_in_float():
    nodes = [
        conv("x", "boxes"),
        node("Sigmoid", "boxes", "scores"),
        node("Concat", "boxes,scores", "cat", axis=1),
        node("Neg", "cat", "n"),
        node("Abs", "cat", "m"),
        node("Add", "n,m", "y"),
    ]
    graph = model(nodes, X, ["y"], {"w": 100 * weight(8, 8, 1, 1)})
    result, _ = quantized(graph)
    notes = {note.code: note for note in result.notes}
    assert "bits lost" in notes["concat_ranges"].text
    assert "scores" in notes["concat_ranges"].text
    assert notes["float_addition"].place == "n_y"


def test_a5_19_ranges_go_from_qdq_to_cache_and_back_unchanged():
    nodes, weights = NETS["residual"]
    graph = model(nodes, X, ["y"], weights)
    first, _ = quantized(graph)
    ranges = activation_ranges(first.model)
    assert set(ranges) == {"x", "r"}
    entries, _ = cache_entries(analyse(graph), {name: DynamicRange(amax) for name, amax in ranges.items()})
    cache = parse(render(entries, "8.6.1").render())
    again = quantize_model(graph, {entry.name: entry.amax for entry in cache.entries}, options=LOGITS)
    assert again.model.SerializeToString() == first.model.SerializeToString()


def test_a2_5_dead_channels_and_tensors_get_a_floor_and_are_listed():
    w = weight(8, 8, 1, 1)
    w[[2, 5]] = 0
    graph = model([conv("x", "a"), node("Relu", "a", "r"), conv("r", "y")], X, ["y"], {"w": w})
    result = quantize_model(graph, {"x": 3.0, "r": 0.0}, options=LOGITS)
    scale, _, _ = pair_on(result.model, "w")
    assert (scale > 0).all()
    assert scale[2] == scale[5] == np.float32(DEAD_AMAX / 127)
    assert result.dead_channels == {"w": (2, 5)}
    assert pair_on(result.model, "r")[0] == np.float32(DEAD_AMAX / 127)
    assert [(note.code, note.place) for note in result.notes[:2]] == [("dead_tensor", "r"), ("dead_channels", "w")]


def test_faulty_weights_are_named():
    w = weight(8, 8, 1, 1)
    w[0, 0] = np.nan
    graph = model([conv("x", "y")], X, ["y"], {"w": w})
    with pytest.raises(ModelError, match="weight 'w'"):
        quantize_model(graph, {"x": 1.0}, options=LOGITS)


def test_a2_28_float16_models_get_float16_scales_at_opset_19():
    w = weight(8, 8, 1, 1, dtype=np.float16)
    w[0] = np.float16(1e-6)
    graph = model([conv("x", "y")], X, ["y"], {"w": w}, elem_type=TensorProto.FLOAT16)
    result, values = quantized(graph)
    assert result.opset == (17, 19)
    scale, _, _ = pair_on(result.model, "w")
    assert scale.dtype == np.float16
    assert (scale > 0).all()
    assert pair_on(result.model, "x")[0].dtype == np.float16
    onnx.checker.check_model(result.model, full_check=True)
    (found,) = run(result.model, values)
    (plain,) = run(graph, values)
    assert np.abs(found.astype(np.float32) - plain).max() < 0.05 * np.abs(plain).max()


def test_bfloat16_models_get_bfloat16_scales():
    nodes = [
        node("Cast", "x", "h", to=TensorProto.BFLOAT16),
        conv("h", "c"),
        node("Cast", "c", "y", to=TensorProto.FLOAT),
    ]
    graph = model(nodes, X, ["y"], {})
    graph.graph.initializer.append(helper.make_tensor("w", TensorProto.BFLOAT16, [8, 8, 1, 1], weight(8, 8).ravel()))
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12]))
    result = quantize_model(graph, {"x": 3.0, "h": 3.0, "c": 9.0}, options=LOGITS)
    kinds = {item.name: item.data_type for item in result.model.graph.initializer}
    assert kinds["h_scale"] == kinds["w_scale"] == TensorProto.BFLOAT16
    onnx.checker.check_model(result.model)


def test_shared_weight_of_two_kinds_of_use_gets_a_pair_for_each():
    nodes = [
        node("MatMul", "x,m", "a"),
        node("Gemm", "a,m", "b", transB=1),
        node("Sub", "b,m", "y"),
    ]
    graph = model(nodes, {"x": (8, 8)}, ["y"], {"m": weight(8, 8)})
    result, values = quantized(graph)
    assert {(pair.tensor, pair.axis) for pair in result.plan.weights} == {("m", 1), ("m", 0)}
    (last,) = by_op(result.model, "Sub")
    assert last.input[1] == "m", "a use that is no layer keeps the float weight"
    np.testing.assert_allclose(
        run(result.model, values)[0], simulated(graph, result.plan, values)[0], rtol=1e-4, atol=1e-4
    )


def test_everything_else_of_the_file_is_kept():
    nodes = [conv("x", "c"), node("Relu", "c", "y")]
    nodes[0].doc_string = "a note"
    custom = helper.make_opsetid("acme", 4)
    graph = model(nodes, {**X, "w": (8, 8, 1, 1)}, ["y"], {"w": weight(8, 8, 1, 1)}, opsets=[custom])
    graph.doc_string, graph.graph.doc_string = "about", "inside"
    helper.set_model_props(graph, {"license": "none"})
    graph.graph.value_info.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, [1, 8, 12, 12]))
    result, _ = quantized(graph)
    check_kept(graph, result.model)
    assert result.model.opset_import == graph.opset_import
    assert result.model.graph.doc_string == "inside"


def test_nodes_out_of_order_come_out_in_order():
    nodes = [node("Relu", "c", "y"), conv("x", "c")]
    graph = model(nodes, X, ["y"], {"w": weight(8, 8, 1, 1)})
    graph.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8, 12, 12]))
    result = quantize_model(graph, {"x": 1.0}, options=LOGITS)
    onnx.checker.check_model(result.model)
    assert [item.op_type for item in result.model.graph.node][-2:] == ["Conv", "Relu"]


def test_quantized_output_and_input_tensors_keep_their_names_for_the_outside():
    graph = model([conv("x", "a"), conv("a", "y")], X, ["a", "y"], {"w": weight(8, 8, 1, 1)})
    result, values = quantized(graph)
    before, after = run(graph, values)[0], run(result.model, values)[0]
    assert [item.name for item in result.model.graph.output] == ["a", "y"]
    np.testing.assert_allclose(after, before, atol=0.05 * np.abs(before).max())


def test_same_input_same_bytes():
    nodes, weights = NETS["pool pad concat"]
    graph = model(nodes, X, ["y"], weights)
    values = feeds(graph)
    ranges = minmax(graph, values)
    shuffled = dict(sorted(ranges.items(), reverse=True))
    one, two = quantize_model(graph, ranges), quantize_model(graph, shuffled)
    assert one.model.SerializeToString() == two.model.SerializeToString()
    assert one.notes == two.notes


def test_layers_inside_subgraphs_are_left_alone_and_noted():
    inner = helper.make_graph(
        [helper.make_node("Conv", ["c", "w"], ["inside"])],
        "inner",
        [],
        [helper.make_tensor_value_info("inside", TensorProto.FLOAT, None)],
    )
    nodes = [conv("x", "c"), helper.make_node("If", ["flag"], ["y"], then_branch=inner, else_branch=inner, name="if")]
    graph = model(nodes, X, ["y"], {"w": weight(8, 8, 1, 1), "flag": np.array(True)})
    result, _ = quantized(graph)
    assert next(item for item in result.model.graph.node if item.op_type == "If") == graph.graph.node[1]
    assert any(note.code == "hidden_layers" and "2 layers" in note.text for note in result.notes)


def test_a_malformed_layer_stays_in_float_instead_of_crashing():
    graph = model(
        [helper.make_node("Conv", ["x"], ["a"], name="n_a"), conv("a", "y")], X, ["y"], {"w": weight(8, 8, 1, 1)}
    )
    result = quantize_model(graph, {"x": 1.0, "a": 1.0}, options=LOGITS)
    assert result.plan.decision("n_a").reason == "no_range"
