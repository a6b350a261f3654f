"""Where Q/DQ pairs go, rule by rule."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from calib.core.graph import Use, analyse
from calib.core.plan import REASONS, PlacementOptions
from calib.errors import ModelError, StatisticsError, UsageError
from calib.stages.placement import plan_quantization
from tests.graphs import model, node, weight

X = {"x": (1, 8, 16, 16)}
HEAD = {"head": weight(5, 8, 1, 1)}


def conv(source, out, w="w", **attributes):
    return node("Conv", f"{source},{w}", out, **attributes)


def network_of(nodes, weights=None, *, inputs=X, outputs=("logits",), head="last", **keywords):
    """Close a chain with a 1x1 head, so that the layers before it are no logits."""
    tail = [conv(head, "logits", "head")] if head else []
    every = {"w": weight(8, 8, 3, 3), "p": weight(8, 8, 1, 1, seed=2), **HEAD, **(weights or {})}
    used = {name for item in [*nodes, *tail] for name in item.input}
    kept = {name: value for name, value in every.items() if name in used}
    return analyse(model([*nodes, *tail], inputs, list(outputs), kept, **keywords))


def plan_of(network, options=None, target="trt11", ranges=None, **keywords):
    ranges = dict.fromkeys((item.name for item in network.activations), 1.0) if ranges is None else ranges
    return plan_quantization(network, ranges, target, options or PlacementOptions(), **keywords)


def pairs(plan, network):
    """Answer (tensor, consumers' labels) of every pair on an activation."""
    return [(pair.tensor, [network.nodes[use.node].outputs[0] for use in pair.uses]) for pair in plan.activations]


def verdicts(plan):
    return {item.label.removeprefix("n_"): f"{item.status}/{item.reason}" for item in plan.decisions}


SAME = {"pads": [1, 1, 1, 1]}


def test_inputs_of_convolutions_get_pairs_outputs_and_fusions_do_not():
    bn = {"s": np.ones(8, np.float32)}
    network = network_of(
        [conv("x", "c", **SAME), node("BatchNormalization", "c,s,s,s,s", "b"), node("Relu", "b", "last")], bn
    )
    plan = plan_of(network, PlacementOptions(logits=True))
    assert pairs(plan, network) == [("x", ["c"]), ("last", ["logits"])]
    assert verdicts(plan) == {
        "c": "int8/quantized",
        "b": "fused/fused",
        "last": "fused/fused",
        "logits": "int8/quantized",
    }


def test_logits_stay_in_float_through_resize_and_softmax():
    nodes = [
        conv("x", "last"),
        conv("last", "score", "head"),
        node("Resize", "score,,up", "big", mode="linear"),
        node("Softmax", "big", "logits", axis=1),
    ]
    network = network_of(nodes, {"up": np.array([1, 1, 2, 2], np.float32)}, head=None)
    found = verdicts(plan_of(network))
    assert found["score"] == "float/logits"
    assert found["big"] == "float/resize"
    assert found["logits"] == "float/softmax"
    assert found["last"] == "int8/quantized"


def test_logits_are_found_behind_labels_and_runtime_sized_resizes():
    nodes = [
        conv("x", "last"),
        conv("last", "score", "head"),
        node("Shape", "x", "size"),
        node("Shape", "last", "inner"),
        node("Slice", "size,two,four", "hw"),
        node("Slice", "inner,zero,two", "nc"),
        node("Concat", "nc,hw", "to", axis=0),
        node("Resize", "score,,,to", "big", mode="linear"),
        node("ArgMax", "big", "label", axis=1),
        node("Cast", "label", "logits", to=TensorProto.UINT8),
    ]
    ints = {"zero": np.array([0]), "two": np.array([2]), "four": np.array([4])}
    network = network_of(nodes, ints, head=None, output_type=TensorProto.UINT8)
    found = verdicts(plan_of(network))
    assert found["score"] == "float/logits"
    assert found["last"] == "int8/quantized"


def test_score_sums_are_logits_and_residual_shortcuts_are_not():
    score = [conv("x", "a"), conv("a", "b"), conv("a", "s1", "head", strides=[1, 1]), conv("b", "s2", "head")]
    crop = node("Slice", "s1,from,to,axes", "s1c")
    nodes = [*score, crop, node("Add", "s1c,s2", "logits")]
    ints = {"from": np.array([1, 1]), "to": np.array([13, 13]), "axes": np.array([2, 3])}
    found = verdicts(plan_of(network_of(nodes, ints, head=None)))
    assert (found["s1"], found["s2"]) == ("float/logits", "float/logits")
    assert (found["a"], found["b"]) == ("int8/quantized", "int8/quantized")
    block = [conv("x", "a", **SAME), conv("a", "b", **SAME), node("Add", "a,b", "logits")]
    found = verdicts(plan_of(network_of(block, head=None)))
    assert (found["a"], found["b"]) == ("int8/quantized", "float/logits")


def test_a5_15_shortcut_of_a_residual_addition_shares_the_convolutions_pair():
    nodes = [
        node("Relu", "x", "r"),
        conv("r", "c1", **SAME),
        node("Relu", "c1", "r1"),
        conv("r1", "c2", **SAME),
        node("Add", "c2,r", "sum"),
        node("Relu", "sum", "last"),
    ]
    network = network_of(nodes)
    plan = plan_of(network)
    assert ("r", ["c1", "sum"]) in pairs(plan, network)
    assert verdicts(plan)["sum"] == "int8/residual"
    assert verdicts(plan)["last"] == "fused/fused"
    use = next(pair for pair in plan.activations if pair.tensor == "r").uses[1]
    assert use == Use(4, 1), "the shortcut side, not the convolution's"


def test_projected_shortcut_quantizes_the_shallower_side():
    nodes = [
        conv("x", "c1", **SAME),
        conv("c1", "c2", **SAME),
        conv("x", "short", "p"),
        node("Add", "short,c2", "last"),
    ]
    network = network_of(nodes)
    assert ("short", ["last"]) in pairs(plan_of(network), network)


def test_additions_in_float_say_why():
    nodes = [
        conv("x", "c"),
        node("Relu", "c", "r"),
        node("Sigmoid", "c", "s"),
        node("Add", "r,s", "nolayer"),
        node("Add", "nolayer,row", "bias"),
        node("ReduceMax", "bias", "peak", axes=[2], keepdims=1),
        node("Add", "bias,peak", "last"),
    ]
    found = verdicts(plan_of(network_of(nodes, {"row": np.ones((8, 1, 1), np.float32)})))
    assert found["nolayer"] == "float/no_layer_to_fuse"
    assert found["last"] == "float/broadcast"
    assert found["bias"] == "float/pointwise"


def squeeze_excite(source, out, nodes_from="GlobalAveragePool"):
    pool = (
        node("GlobalAveragePool", source, "pool")
        if nodes_from == "GlobalAveragePool"
        else node("ReduceMean", source, "pool", axes=[2, 3], keepdims=1)
    )
    return [
        pool,
        conv("pool", "squeeze", "p"),
        node("Relu", "squeeze", "act"),
        conv("act", "excite", "p"),
        node("Sigmoid", "excite", "gate"),
        node("Mul", f"{source},gate", out),
    ]


@pytest.mark.parametrize("pool", ["GlobalAveragePool", "ReduceMean"])
def test_squeeze_excite_gates_stay_in_float(pool):
    network = network_of([conv("x", "c"), *squeeze_excite("c", "last", pool)])
    plan = plan_of(network)
    found = verdicts(plan)
    assert {found[name] for name in ("pool", "squeeze", "act", "excite", "gate", "last")} == {"float/gate"}
    assert pairs(plan, network) == [("x", ["c"])]
    asked = verdicts(plan_of(network, PlacementOptions(gates=True)))
    assert (asked["squeeze"], asked["last"]) == ("int8/quantized", "float/gate")


def test_image_level_pooling_is_context_and_what_follows_its_resize_is_not():
    nodes = [
        conv("x", "c"),
        node("GlobalAveragePool", "c", "pool"),
        conv("pool", "vector", "p"),
        node("Resize", "vector,,up", "map", mode="nearest"),
        node("Concat", "c,map", "cat", axis=1),
        conv("cat", "last", "wide"),
    ]
    weights = {"up": np.array([1, 1, 14, 14], np.float32), "wide": weight(8, 16, 1, 1)}
    found = verdicts(plan_of(network_of(nodes, weights)))
    assert (found["pool"], found["vector"]) == ("float/global_context", "float/global_context")
    assert (found["map"], found["last"]) == ("float/resize", "int8/quantized")


def test_pair_stands_after_resize_and_average_pool():
    nodes = [
        conv("x", "c"),
        node("Resize", "c,,up", "big", mode="linear"),
        node("AveragePool", "big", "avg", kernel_shape=[2, 2]),
        conv("avg", "d"),
        conv("big", "e"),
        node("Concat", "e,e", "cat", axis=1),
        conv("cat", "last", "wide"),
        node("Neg", "d", "unused"),
    ]
    weights = {"up": np.array([1, 1, 2, 2], np.float32), "wide": weight(8, 16, 1, 1)}
    network = network_of(nodes, weights)
    plan = plan_of(network)
    assert [name for name, _ in pairs(plan, network)] == ["x", "big", "avg", "cat"]
    assert ("big", ["e"]) in pairs(plan, network)
    assert verdicts(plan)["avg"] == "float/average_pool"


def test_a5_16_pair_stands_before_a_pad():
    pads = {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "zero": np.float32(0), "half": np.float32(0.5)}
    chain = [node("Relu", "x", "r"), node("Pad", "r,pads,zero", "padded"), conv("padded", "last")]
    network = network_of(chain, pads)
    assert pairs(plan_of(network), network) == [("r", ["padded"])]
    chain[1] = node("Pad", "r,pads", "padded", mode="reflect")
    network = network_of(chain, pads)
    assert pairs(plan_of(network), network) == [("r", ["padded"])]
    chain[1] = node("Pad", "r,pads,half", "padded")
    network = network_of(chain, pads)
    assert pairs(plan_of(network), network) == [("padded", ["last"])], "a fill that is off the grid stays outside"
    shared = [*chain[:1], node("Pad", "r,pads,zero", "padded"), conv("padded", "last"), node("Neg", "padded", "more")]
    network = network_of(shared, pads, outputs=("logits", "more"))
    assert pairs(plan_of(network), network) == [("padded", ["last"])], (
        "another reader of the padded tensor is left alone"
    )


def test_pad_attribute_of_old_opsets():
    chain = [node("Pad", "x", "padded", pads=[0, 0, 1, 1, 0, 0, 1, 1], value=0.0), conv("padded", "last")]
    network = network_of(chain, opset=10)
    assert pairs(plan_of(network), network) == [("x", ["padded"])]


def test_max_pool_takes_the_pair_its_input_has_anyway():
    alone = [node("Relu", "x", "r"), node("MaxPool", "r", "m", kernel_shape=[2, 2]), conv("m", "last")]
    network = network_of(alone)
    assert pairs(plan_of(network), network) == [("m", ["last"])]
    both = [*alone[:2], conv("m", "c", "p"), conv("r", "d", "p", strides=[2, 2]), node("Add", "c,d", "last")]
    network = network_of(both)
    assert ("r", ["m", "d"]) in pairs(plan_of(network), network)
    assert "m" not in dict(pairs(plan_of(network), network))


def test_depthwise_separable_has_pairs_before_depthwise_pointwise_and_next():
    weights = {"dw": weight(8, 1, 3, 3), "pw": weight(8, 8, 1, 1)}
    nodes = [
        conv("x", "d", "dw", group=8),
        node("Relu", "d", "dr"),
        conv("dr", "q", "pw"),
        node("Relu", "q", "qr"),
        conv("qr", "last"),
    ]
    network = network_of(nodes, weights)
    plan = plan_of(network)
    assert pairs(plan, network) == [("x", ["d"]), ("dr", ["q"]), ("qr", ["last"])]
    assert {pair.tensor: pair.axis for pair in plan.weights} == {"dw": 0, "pw": 0, "w": 0}


@pytest.mark.parametrize(
    ("shape", "group", "mode", "axis", "expected"),
    [
        ((3, 64, 3, 3), 1, "per-tensor", None, None),
        ((3, 64, 3, 3), 1, "axis", None, 1),
        ((3, 64, 3, 3), 1, "axis", 0, 0),
        ((8, 1, 2, 2), 8, "axis", None, 0),
        ((8, 4, 2, 2), 2, "axis", None, 1),
    ],
)
def test_a5_1_a5_3_axis_of_transposed_convolutions(shape, group, mode, axis, expected):
    nodes = [node("ConvTranspose", "x,t", "up", group=group, strides=[2, 2]), node("Relu", "up", "r")]
    tail = conv("r", "logits", "h")
    channels = shape[1] * group
    network = analyse(
        model(
            [*nodes, tail],
            {"x": (1, shape[0], 8, 8)},
            ["logits"],
            {"t": weight(*shape), "h": weight(5, channels, 1, 1)},
        )
    )
    options = PlacementOptions(conv_transpose=mode, conv_transpose_axis=axis)
    plan = plan_of(network, options, "ort")
    assert [pair.axis for pair in plan.weights] == [expected]
    on_trt = verdicts(plan_of(network, options, "trt10"))["up"]
    assert on_trt == ("float/grouped_deconv" if group > 1 else "int8/quantized")
    assert verdicts(plan_of(network, PlacementOptions(conv_transpose="float"), "ort"))["up"] == "float/deconv_float"


@pytest.mark.parametrize(
    ("op", "inputs", "shape", "attributes", "axis"),
    [
        ("Gemm", "x,m", (6, 7), {}, 1),
        ("Gemm", "x,m", (7, 6), {"transB": 1}, 0),
        ("Gemm", "m,x", (7, 4), {}, 0),
        ("Gemm", "m,x", (4, 7), {"transA": 1}, 1),
        ("MatMul", "x,m", (6, 7), {}, 1),
        ("MatMul", "m,x", (7, 4), {}, 0),
    ],
)
def test_axis_of_matrix_weights_is_that_of_the_output(op, inputs, shape, attributes, axis):
    nodes = [node(op, inputs, "y", **attributes), node("Relu", "y", "r"), node("MatMul", "r,h", "logits")]
    out = 7 if inputs == "x,m" else 6
    network = analyse(model(nodes, {"x": (4, 6)}, ["logits"], {"m": weight(*shape), "h": weight(out, 3)}))
    assert [pair.axis for pair in plan_of(network).weights] == [axis]
    assert [pair.axis for pair in plan_of(network, PlacementOptions(per_channel=False)).weights] == [None]


def test_a5_7_below_opset_13_there_is_no_axis():
    network = network_of([conv("x", "last")], opset=12)
    plan = plan_of(network)
    assert not plan.per_channel
    assert {pair.axis for pair in plan.weights} == {None}


def test_products_of_two_activations_and_dynamic_weights_quantize_both_sides():
    nodes = [
        node("MatMul", "x,x", "qk"),
        node("Softmax", "qk", "a", axis=-1),
        node("MatMul", "a,x", "last"),
        node("MatMul", "last,h", "logits"),
    ]
    network = analyse(model(nodes, {"x": (1, 8, 8)}, ["logits"], {"h": weight(8, 3)}))
    plan = plan_of(network)
    assert pairs(plan, network) == [("x", ["qk", "qk", "last"]), ("a", ["last"])]
    assert verdicts(plan)["a"] == "float/softmax"


def test_dynamic_convolution_weights_get_a_pair_of_their_own():
    nodes = [
        node("Reshape", "k,to", "kernel"),
        node("Conv", "x,kernel", "last"),
    ]
    network = network_of(nodes, {"to": np.array([8, 8, 3, 3])}, inputs={**X, "k": (8, 72)})
    plan = plan_of(network)
    assert [pair.tensor for pair in plan.activations] == ["x", "kernel"]
    assert plan.weights == ()
    missing = plan_of(network, ranges={"x": 1.0, "last": 1.0})
    assert missing.decision("n_last").reason == "no_range"
    assert missing.decision("n_last").detail == "kernel"


def test_shared_weights_share_a_pair_and_dedicated_splits_activation_pairs():
    nodes = [conv("x", "a", **SAME), conv("x", "b", **SAME), node("Mul", "a,b", "last")]
    network = network_of(nodes)
    plan = plan_of(network)
    assert [(pair.tensor, len(pair.uses)) for pair in plan.weights] == [("w", 2)]
    assert [(pair.tensor, len(pair.uses)) for pair in plan.activations] == [("x", 2)]
    split = plan_of(network, PlacementOptions(dedicated=True))
    assert [(pair.tensor, len(pair.uses)) for pair in split.activations] == [("x", 1), ("x", 1)]


def test_a5_13_concatenation_prices_its_narrow_inputs_and_ties_when_asked():
    nodes = [
        conv("x", "wide", **SAME),
        node("Sigmoid", "x", "narrow"),
        node("Concat", "wide,narrow", "cat", axis=1),
        conv("cat", "last", "both"),
        conv("narrow", "other", "p"),
    ]
    network = network_of(nodes, {"both": weight(8, 16, 1, 1)}, outputs=("logits", "other"))
    ranges = {"x": 1.0, "wide": 640.0, "narrow": 1.0, "cat": 640.0, "last": 1.0, "other": 1.0}
    options = PlacementOptions(logits=True)
    plan = plan_of(network, options, ranges=ranges)
    assert [(item.tensor, round(item.bits, 2)) for item in plan.concats] == [("narrow", 9.32)]
    assert {pair.tensor: pair.amax for pair in plan.activations}["narrow"] == 1.0
    tied = plan_of(network, PlacementOptions(logits=True, tie_concat=True), ranges=ranges)
    assert {pair.tensor: pair.amax for pair in tied.activations}["narrow"] == 640.0
    assert {pair.tensor: pair.amax for pair in tied.activations}["x"] == 1.0


def test_layers_without_range_or_of_other_types_stay_in_float():
    network = network_of([conv("x", "a"), node("Relu", "a", "last")])
    plan = plan_of(network, ranges={"last": 1.0, "a": 1.0})
    assert (plan.decision("n_a").reason, plan.decision("n_a").detail) == ("no_range", "x")
    double = network_of(
        [conv("x", "last", "w64")],
        {"w64": weight(8, 8, 3, 3, dtype=np.float64), "head": weight(5, 8, 1, 1, dtype=np.float64)},
        elem_type=TensorProto.DOUBLE,
    )
    assert plan_of(double).decision("n_last").reason == "element_type"
    half = {"w": weight(8, 8, 3, 3, dtype=np.float16), "head": weight(5, 8, 1, 1, dtype=np.float16)}
    old = network_of([conv("x", "last")], half, elem_type=TensorProto.FLOAT16, opset=17)
    assert plan_of(old).decision("n_last").reason == "opset"
    new = network_of([conv("x", "last")], half, elem_type=TensorProto.FLOAT16, opset=19)
    assert {pair.elem_type for pair in plan_of(new).activations} == {"float16"}


def test_a2_35_every_operator_without_int8_path_has_a_reason():
    custom = helper.make_node("Magic", ["b"], ["m"], domain="acme", name="n_m")
    nodes = [
        conv("x", "c"),
        node("InstanceNormalization", "c,s,s", "i"),
        node("Exp", "i", "e"),
        node("ReduceMean", "e", "mean", axes=[1], keepdims=1),
        node("Mul", "e,mean", "b"),
        custom,
        conv("m", "last"),
    ]
    network = network_of(nodes, {"s": np.ones(8, np.float32)}, opsets=[helper.make_opsetid("acme", 1)])
    plan = plan_of(network)
    found = verdicts(plan)
    assert found == {
        "c": "int8/quantized",
        "i": "float/normalisation",
        "e": "float/pointwise",
        "mean": "float/reduction",
        "b": "float/elementwise",
        "m": "float/custom",
        "last": "int8/quantized",
        "logits": "float/logits",
    }
    assert all(item.reason in REASONS and item.text for item in plan.decisions)


def test_fusions_of_bias_scale_and_gated_activations():
    nodes = [
        node("MatMul", "x,m", "p"),
        node("Add", "p,row", "biased"),
        node("Sigmoid", "biased", "s"),
        node("Mul", "biased,s", "silu"),
        node("MatMul", "silu,h", "logits"),
    ]
    weights = {"m": weight(8, 8), "h": weight(8, 3), "row": np.ones(8, np.float32)}
    found = verdicts(plan_of(analyse(model(nodes, {"x": (4, 8)}, ["logits"], weights))))
    assert {found[name] for name in ("biased", "s", "silu")} == {"fused/fused"}


def test_float_nodes_are_left_alone_by_name_or_label():
    nodes = [conv("x", "a"), helper.make_node("Conv", ["a", "w"], ["last"])]
    network = network_of(nodes)
    plan = plan_of(network, PlacementOptions(float_nodes=frozenset({"n_a", "Conv(last)"})))
    assert plan.counts() == {"float/excluded": 2, "float/logits": 1}
    assert (plan.activations, plan.weights) == ((), ())


def test_wrong_input_is_an_error():
    network = network_of([conv("x", "last")])
    with pytest.raises(UsageError, match="trt10, trt11, ort"):
        plan_of(network, target="trt12")
    for amax in (np.inf, np.nan, -1.0):
        with pytest.raises(StatisticsError, match="'x'"):
            plan_of(network, ranges={"x": amax})
    quantized = analyse(
        model([node("QuantizeLinear", "x,s,z", "q"), node("DequantizeLinear", "q,s,z", "y")], X, ["y"],
              {"s": np.float32(1), "z": np.int8(0)})
    )  # fmt: skip
    with pytest.raises(ModelError, match="a float network"):
        plan_of(quantized)


def test_every_reason_is_documented():
    text = (Path(__file__).resolve().parents[2] / "docs/placement.md").read_text(encoding="utf-8")
    assert [code for code in REASONS if f"| `{code}` |" not in text] == []
