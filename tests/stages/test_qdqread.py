"""Q/DQ models of any tool: exact scales where they are symmetric, and a remark where TensorRT will refuse."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.edges.models import load_model
from calib.errors import FormatError, ModelError
from calib.stages.qdqread import read_qdq
from tests.core.formats.tables import qdq_model
from tests.graphs import model, node, weight

SCALE = float(np.float32(0.0123))


def codes(made: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    return {item.code: item.names for item in read_qdq(made, "m").remarks}


def test_symmetric_pairs_are_read_exactly_with_their_weights():
    found = read_qdq(qdq_model(SCALE), "m")
    assert {item.name: item.scale for item in found} == {"x": SCALE}
    (one,) = found.weights
    assert (one.name, one.axis, one.rank, one.scales.shape, one.follows_weight) == ("w", 0, 4, (4,), True)
    assert (found.order, found.remarks) == ("network", ())


def test_scales_of_pytorch_exports_stand_behind_constant_cast_and_reshape():
    made = qdq_model(SCALE)
    kept = [item for item in made.graph.initializer if item.name not in {"s", "z"}]
    del made.graph.initializer[:]
    made.graph.initializer.extend(kept)
    wide = numpy_helper.from_array(np.asarray([SCALE], np.float64), "wide")
    zero = numpy_helper.from_array(np.asarray(0, np.int8), "zero")
    shape = numpy_helper.from_array(np.asarray([], np.int64), "shape")
    chain = [
        helper.make_node("Constant", [], ["s0"], value=wide),
        helper.make_node("Cast", ["s0"], ["s1"], to=TensorProto.FLOAT),
        helper.make_node("Constant", [], ["to"], value=shape),
        helper.make_node("Reshape", ["s1", "to"], ["s"]),
        helper.make_node("Constant", [], ["z0"], value=zero),
        helper.make_node("Identity", ["z0"], ["z"]),
    ]
    nodes = [*chain, *made.graph.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    assert read_qdq(made, "m").ranges["x"].scale == SCALE


def test_unsigned_and_shifted_pairs_are_read_as_the_symmetric_range_that_holds_them():
    unsigned = read_qdq(qdq_model(0.5, 0, dtype=np.uint8), "m")
    assert (unsigned.ranges["x"].amax, unsigned.ranges["x"].scale) == (127.5, None)
    shifted = read_qdq(qdq_model(0.5, -28), "m")
    assert shifted.ranges["x"].amax == (127 + 28) * 0.5
    for table in (unsigned, shifted):
        (remark,) = table.remarks
        assert (remark.code, remark.names, remark.blocks) == ("asymmetric", ("x",), True)
        assert "TensorRT rejects" in remark.text
        assert f"{np.log2(table.ranges['x'].amax / 127 / 0.5):.2f} bits coarser" in remark.text


def test_what_is_no_int8_per_tensor_scale_is_remarked_on():
    assert codes(qdq_model(0.5, 0, dtype=np.int16)) == {"not_int8": ("x",)}
    per_channel = qdq_model(np.array([0.5, 0.25, 0.125]), np.zeros(3))
    assert codes(per_channel) == {"per_channel_activation": ("x",)}
    assert read_qdq(per_channel, "m").ranges["x"].amax == 0.5 * 127
    computed = qdq_model(SCALE)
    computed.graph.node[0].input[1] = "x"
    assert codes(computed) == {"unreadable_scale": ("x",)}


def test_one_tensor_with_two_scales_gets_the_larger_and_a_remark():
    extra = (
        helper.make_node("QuantizeLinear", ["x", "s2", "z"], ["xq2"], "second"),
        helper.make_node("DequantizeLinear", ["xq2", "s2", "z"], ["out"], "secondD"),
    )
    made = qdq_model(SCALE, extra=extra)
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(2.0, np.float32), "s2"))
    assert codes(made) == {"conflicts": ("x",)}
    assert read_qdq(made, "m").ranges["x"].scale == 2.0


def test_weights_stored_as_int8_and_int32_biases():
    made = qdq_model(SCALE)
    nodes = [item for item in made.graph.node if item.name != "wQ"]
    for item in nodes:
        if item.name == "wD":
            item.input[0] = "w8"
    bias = helper.make_node("DequantizeLinear", ["b", "s"], ["bd"], "bD")
    del made.graph.node[:]
    made.graph.node.extend([*nodes[:-1], bias, nodes[-1]])
    made.graph.initializer.append(numpy_helper.from_array(np.ones((4, 3, 1, 1), np.int8), "w8"))
    made.graph.initializer.append(numpy_helper.from_array(np.zeros(4, np.int32), "b"))
    found = read_qdq(made, "m")
    assert [(item.name, item.follows_weight) for item in found.weights] == [("w8", False)]
    np.testing.assert_array_equal(found.parameters["w8"][:, 0, 0, 0], np.float32(found.weights[0].scales))
    assert [(item.code, item.names, item.blocks) for item in found.remarks] == [("int32_bias", ("b",), False)]


def test_brevitas_clips_between_q_and_dq():
    made = qdq_model(SCALE)
    stored = made.graph.initializer
    stored.extend(
        numpy_helper.from_array(np.asarray(value, np.int8), name) for name, value in (("lo", -127), ("hi", 127))
    )
    nodes = []
    for item in made.graph.node:
        if item.op_type == "DequantizeLinear":
            nodes.append(helper.make_node("Clip", [item.input[0], "lo", "hi"], [f"{item.name}_clipped"]))
            item.input[0] = f"{item.name}_clipped"
        nodes.append(item)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    found = read_qdq(made, "m")
    assert {item.name: item.scale for item in found} == {"x": SCALE}
    assert [(item.code, item.names, item.blocks) for item in found.remarks] == [("narrow_range", ("x",), False)]
    assert [(item.name, item.axis, item.follows_weight) for item in found.weights] == [("w", 0, True)]


def test_graph_outputs_that_onnx_runtime_renamed_keep_their_name():
    extra = (
        helper.make_node("QuantizeLinear", ["y_QuantizeLinear_Input", "s", "z"], ["yq"], "yQ"),
        helper.make_node("DequantizeLinear", ["yq", "s", "z"], ["y"], "yD"),
    )
    made = qdq_model(SCALE, extra=extra)
    made.graph.node[4].output[0] = "y_QuantizeLinear_Input"
    assert list(read_qdq(made, "m").ranges) == ["x", "y"]


def test_models_of_onnx_runtimes_quantizer_are_read(tmp_path):
    quant = pytest.importorskip("onnxruntime.quantization")
    path, out = tmp_path / "f.onnx", tmp_path / "q.onnx"
    nodes = [node("Conv", "x,w", "c"), node("Relu", "c", "r"), node("Conv", "r,w2", "y")]
    onnx.save(model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(4, 3, 3, 3), "w2": weight(2, 4, 1, 1)}), path)

    class Reader(quant.CalibrationDataReader):
        left = 2

        def get_next(self):
            self.left -= 1
            return (
                {"x": np.random.default_rng(self.left).normal(size=(1, 3, 8, 8)).astype(np.float32)}
                if self.left >= 0
                else None
            )

    signed = quant.QuantType.QInt8
    options = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False, "AddQDQPairToWeight": True}
    quant.quantize_static(
        str(path),
        str(out),
        Reader(),
        activation_type=signed,
        weight_type=signed,
        per_channel=True,
        extra_options=options,
    )
    found = read_qdq(onnx.load(out), "q")
    assert set(found.ranges) >= {"x", "r", "y"}
    assert not [item for item in found.remarks if item.blocks]
    assert {item.name for item in found.weights} == {"w", "w2"}
    quant.quantize_static(str(path), str(out), Reader())
    assert set(codes(onnx.load(out))) >= {"asymmetric"}


def test_names_that_are_no_text_are_refused(tmp_path):
    data = qdq_model(SCALE).SerializeToString().replace(b"\x01x", b"\x01\xff")
    with pytest.raises(FormatError, match="UTF-8"):
        read_qdq(onnx.load_from_string(data), "m")
    made = qdq_model(SCALE)
    made.producer_name = "maker"
    odd = onnx.load_from_string(made.SerializeToString().replace(b"maker", b"mak\xffr"))
    assert read_qdq(odd, "m").metadata == {"producer": "mak\ufffdr"}
    (tmp_path / "m.onnx").write_bytes(data)
    with pytest.raises(ModelError, match="UTF-8"):
        load_model(tmp_path / "m.onnx")


def test_a_float_model_is_no_source_of_ranges():
    made = model([node("Relu", "x", "y")], {"x": (1, 3)}, ["y"])
    with pytest.raises(FormatError, match="--model"):
        read_qdq(made, "m")


def test_unsigned_integers_around_128_are_the_same_values_in_int8():
    found = read_qdq(qdq_model(SCALE, 128, dtype=np.uint8), "m")
    assert found.ranges["x"].scale == SCALE
    assert [(item.code, item.blocks) for item in found.remarks] == [("exact_unsigned", False)]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_a_zero_point_that_is_stored_as_a_float_is_that_of_int8(dtype):
    assert read_qdq(qdq_model(SCALE, 0, dtype=dtype), "m").ranges["x"].scale == SCALE
    assert codes(qdq_model(SCALE, 0.5, dtype=dtype)) == {"unreadable_scale": ("x",)}


def test_tensorrts_own_operators_need_no_zero_point():
    made = qdq_model(SCALE)
    for item in made.graph.node[:2]:
        item.op_type, item.domain = f"TRT_INT8{item.op_type}", "trt"
        del item.input[2:]
    assert read_qdq(made, "m").ranges["x"].scale == SCALE


def test_fewer_bits_by_a_clip_are_told_and_their_range_is_read():
    made = with_clip(qdq_model(SCALE), -8, 7)
    found = read_qdq(made, "m")
    assert found.ranges["x"].amax == pytest.approx(8 * SCALE)
    assert [(item.code, item.names, item.blocks) for item in found.remarks] == [("narrow_bits", ("x",), True)]


def with_clip(made: onnx.ModelProto, low: int, high: int) -> onnx.ModelProto:
    """Put a Clip between the Q and the DQ of the activation."""
    for name, value in (("low", low), ("high", high)):
        made.graph.initializer.append(numpy_helper.from_array(np.asarray(value, np.int8), name))
    made.graph.node.insert(1, helper.make_node("Clip", ["xq", "low", "high"], ["xc"], "clip"))
    made.graph.node[2].input[0] = "xc"
    return made


@pytest.mark.parametrize(
    ("bits", "signed", "narrow", "amax", "code"),
    [(8, 1, 0, 127, None), (8, 1, 1, 127, "narrow_range"), (8, 0, 0, 255, "asymmetric"), (4, 1, 0, 8, "narrow_bits")],
)
def test_quant_nodes_of_qonnx_are_read(bits, signed, narrow, amax, code):
    found = read_qdq(qonnx_model(bits, signed, narrow), "m")
    assert found.ranges["x"].amax == pytest.approx(amax * SCALE)
    assert found.ranges["x"].scale == (SCALE if amax == 127 else None)
    assert [item.code for item in found.remarks] == ([code] if code else [])
    (one,) = found.weights
    assert (one.axis, one.scales.shape, one.rank) == (0, (4,), 4)


def qonnx_model(bits: int = 8, signed: int = 1, narrow: int = 0, op_type: str = "Quant") -> onnx.ModelProto:
    """A convolution whose input and weight one node each quantizes."""
    value = weight(4, 3, 1, 1)
    stored = {
        "s": np.float32(SCALE), "zero": np.float32(0), "bits": np.float32(bits), "eight": np.float32(8), "w": value,
        "ws": np.asarray(np.abs(value).max((1, 2, 3), keepdims=True) / 127, np.float32),
    }  # fmt: skip
    domain = {"domain": "qonnx.custom_op.general", "rounding_mode": "ROUND"}
    nodes = [
        helper.make_node(op_type, ["x", "s", "zero", "bits"], ["xd"], "xQ", signed=signed, narrow=narrow, **domain),
        helper.make_node("Quant", ["w", "ws", "zero", "eight"], ["wd"], "wQ", signed=1, narrow=1, **domain),
        node("Conv", "xd,wd", "y"),
    ]
    made = model(nodes, {"x": (1, 3, 8, 8)}, [], stored, opsets=[helper.make_opsetid("qonnx.custom_op.general", 2)])
    made.graph.output.append(helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4, 8, 8]))
    return made


def test_bipolar_and_float_quantizers_of_qonnx_carry_no_int8_range():
    for op_type in ("BipolarQuant", "FloatQuant"):
        found = read_qdq(qonnx_model(op_type=op_type), "m")
        assert not found.ranges
        assert [(item.code, item.names) for item in found.remarks] == [("not_int8", ("x",))]


@pytest.mark.parametrize("op_type", ["QLinearConv", "ConvInteger", "DynamicQuantizeLinear"])
def test_operators_on_integers_are_named(op_type):
    made = model([helper.make_node(op_type, ["x", "x", "x"], ["y"])], {"x": (1, 3)}, [])
    with pytest.raises(FormatError, match=op_type):
        read_qdq(made, "m")


def test_a_quantizer_that_rounds_down_has_no_int8_range():
    made = qonnx_model()
    for item in made.graph.node[0].attribute:
        if item.name == "rounding_mode":
            item.s = b"FLOOR"
    assert codes(made) == {"not_int8": ("x",)}
