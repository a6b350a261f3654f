"""Public reports of accuracy lost before quantization: each one's trigger, and what lint says of it.

Where two runtimes disagree, both are run here, and the text must say who is right by the ONNX specification.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from calib.core.lint.engine import lint_model
from calib.core.lint.rule import Finding
from tests.graphs import model, node, run, weight
from tests.lint.cases import conv_bn, deconv, grid_sample, listed, pad
from tests.lint.graphs import OPEN, batchnorm, conv, edited, resize, single

RAMP = np.arange(100, dtype=np.float32).reshape(1, 1, 10, 10)


def found(graph: onnx.ModelProto, rule: str, **options) -> Finding | None:
    return next((item for item in lint_model(graph, **options) if item.rule.id == rule), None)


def saw(graph: onnx.ModelProto, rule: str, **options) -> str:
    item = found(graph, rule, **options)
    assert item is not None, rule
    return " ".join([*(place.saw for place in item.places), item.rule.why, item.rule.remedy])


def test_a1_1_bilinear_to_one_pixel() -> None:
    corner, centre = (
        resize((1, 1, 10, 10), sizes=(1, 1, 1, 1), mode="linear", coordinate_transformation_mode=mode)
        for mode in ("pytorch_half_pixel", "half_pixel")
    )
    assert [float(run(graph, {"x": RAMP})[0].item()) for graph in (corner, centre)] == [0.0, 49.5]
    text = saw(corner, "resize-single-pixel")
    assert "axis 2: 10 to 1" in text
    assert "runtimes are right" in text
    assert "write half_pixel" in text
    assert lint_model(centre) == ()


def test_a1_1_a_pixel_that_was_one_already_is_no_matter() -> None:
    graph = resize((1, 4, 1, 1), sizes=(1, 4, 1, 1), mode="linear", coordinate_transformation_mode="pytorch_half_pixel")
    assert lint_model(graph) == ()


def test_a1_2_ties_are_backend_rounding() -> None:
    settings = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_ceil"}
    graph = resize((1, 1, 1, 20), sizes=(1, 1, 1, 6), **settings)
    text = saw(graph, "resize-ties")
    ramp = np.arange(20, dtype=np.float32).reshape(1, 1, 1, 20)
    assert ReferenceEvaluator(graph).run(None, {"x": ramp})[0].ravel()[4] == 15
    assert "20 to 6" in text
    assert "output 1 is source 5 by the specification" in text
    assert "no loss by quantization" in text


def test_a1_4_a_boundary_that_float32_misses_is_counted() -> None:
    graph = resize(
        (1, 1, 1, 26), sizes=(1, 1, 1, 64), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )
    ramp = np.arange(26, dtype=np.float32).reshape(1, 1, 1, 26)
    assert run(graph, {"x": ramp})[0].ravel()[32] == 12
    assert "1 on a boundary, output 32 is source 13 by the specification" in saw(graph, "resize-ties")
    for before, after in ((32, 64), (10, 25), (16, 48)):
        clean = resize(
            (1, 1, 1, before), sizes=(1, 1, 1, after), coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )
        assert lint_model(clean) == (), (before, after)


@pytest.mark.parametrize(
    ("mode", "gap"), [("half_pixel", 0), ("pytorch_half_pixel", 0), ("align_corners", 0), ("asymmetric", 0.25)]
)
def test_a1_5_a1_7_coordinates_are_checked_at_every_resize(mode: str, gap: float) -> None:
    graph = resize((1, 3, 8, 8), scales=(1, 1, 2, 2), mode="linear", coordinate_transformation_mode=mode)
    if not gap:
        assert lint_model(graph) == ()
        return
    text = saw(graph, "resize-coordinates")
    assert f"linear, {mode}: up to {gap} source pixels off, the map moves by -0.5 output pixels" in text
    assert "no runtime's bug" in text


def test_a1_7_asymmetric_by_a_broken_factor() -> None:
    graph = resize((1, 1, 4, 4), scales=(1, 1, 2.5, 2.5), mode="linear", coordinate_transformation_mode="asymmetric")
    assert "up to 0.3 source pixels off" in saw(graph, "resize-coordinates")


def test_a1_5_opset_10_and_upsample_sample_asymmetrically() -> None:
    scales = {"s": np.array([1, 1, 2, 2], np.float32)}
    for op_type, opset in (("Resize", 10), ("Upsample", 9)):
        linear, nearest = (
            model([node(op_type, "x,s", "y", mode=mode)], {"x": (1, 3, 8, 8)}, ["y"], scales, opset=opset)
            for mode in ("linear", "nearest")
        )
        assert "linear, asymmetric" in saw(linear, "resize-coordinates")
        assert lint_model(nearest) == ()


def test_nearest_modes_are_judged_by_the_pixels_they_take() -> None:
    half = {"coordinate_transformation_mode": "half_pixel", "nearest_mode": "round_prefer_floor"}
    assert lint_model(resize((1, 3, 8, 8), scales=(1, 1, 2, 2), **half)) == ()
    assert lint_model(resize((1, 3, 8, 8), sizes=(1, 3, 24, 24), **half)) == ()
    text = saw(resize((1, 3, 10, 10), sizes=(1, 3, 15, 15), **{**half, "nearest_mode": "ceil"}), "resize-coordinates")
    assert "neighbours along axis 2 differ" in text


def test_a_tensorflow_export_may_be_asymmetric() -> None:
    graph = resize((1, 3, 8, 8), scales=(1, 1, 2, 2), mode="linear", coordinate_transformation_mode="asymmetric")
    graph.producer_name = "tf2onnx"
    item = found(graph, "resize-coordinates")
    assert item is not None
    assert item.severity == "note"


def test_a1_8_resize_of_a_non_spatial_axis() -> None:
    for scales in ((1, 2, 2, 1), (1, 1, 2, 2)):
        graph = resize((1, 15, 20, 2), scales=scales, mode="linear", coordinate_transformation_mode="align_corners")
        assert (found(graph, "resize-axes") is not None) == (scales[3] != 1), scales
    assert "axis 0 (batch)" in saw(resize((2, 3, 8, 8), scales=(2, 1, 2, 2), mode="linear"), "resize-axes")
    assert "axis 1 (channel)" in saw(resize((1, 8, 8, 8), scales=(1, 2, 2, 2), mode="linear"), "resize-axes")


def test_a1_8_channels_last_is_read_from_the_graph() -> None:
    nodes = [
        node("Conv", "x,w", "c"),
        node("Transpose", "c", "t", perm=[0, 2, 3, 1]),
        node("Resize", "t,,s", "r", mode="linear"),
        node("Transpose", "r", "y", perm=[0, 3, 1, 2]),
    ]
    for scales, wrong in (((1, 2, 2, 1), False), ((1, 1, 2, 2), True)):
        graph = model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(6, 3, 1, 1), "s": np.array(scales, np.float32)})
        assert (found(graph, "resize-axes") is not None) == wrong


def test_a1_10_a_scale_that_loses_a_row() -> None:
    graph = resize((1, 3, 33, 33), scales=(1, 1, 47 / 33, 47 / 33), mode="linear")
    image = {"x": np.zeros((1, 3, 33, 33), np.float32)}
    assert run(graph, image)[0].shape[2:] == (47, 47)
    assert ReferenceEvaluator(graph).run(None, image)[0].shape[2:] == (46, 46)
    text = saw(graph, "resize-rounding")
    assert "33 times 1.4242424 makes 46 by the specification, 47 in float32, 47 in PyTorch" in text
    assert "right by the specification" in text
    for fine in (2.0, 1.5, 1 / 3, 0.75):
        assert found(resize((1, 3, 30, 30), scales=(1, 1, fine, fine), mode="linear"), "resize-rounding") is None


def test_a1_11_a_scale_that_an_export_froze() -> None:
    text = saw(resize(OPEN["x"], scales=(1, 1, 480 / 352, 640 / 352), mode="linear"), "resize-frozen")
    assert "is the ratio of two sizes" in text
    assert "run it at two sizes" in text
    assert "always makes 64x64" in saw(resize(OPEN["x"], sizes=(1, 3, 64, 64), mode="linear"), "resize-frozen")
    for meant in ((1, 1, 2, 2), (1, 1, 0.5, 0.5), (1, 1, 1.5, 1.5), (1, 1, 1 / 3, 1 / 3)):
        assert found(resize(OPEN["x"], scales=meant, mode="linear"), "resize-frozen") is None
    assert found(resize((1, 3, 352, 352), scales=(1, 1, 480 / 352, 1.5), mode="linear"), "resize-frozen") is None


def test_a1_13_batchnorm_without_running_statistics() -> None:
    flagged = saw(batchnorm(training_mode=1), "batchnorm-training")
    assert "training_mode 1" in flagged
    old = batchnorm(opset=12)
    old.graph.node[1].output.extend(["mean", "var", "saved_mean", "saved_var"])
    assert "5 outputs" in saw(old, "batchnorm-training")
    item = found(old, "batchnorm-training")
    assert item is not None
    assert item.severity == "error"


def test_a1_13_the_form_that_newer_exporters_write() -> None:
    nodes = [
        node("ReduceMean", "x", "m", axes=[0, 2, 3], keepdims=0),
        node("ReduceMean", "x", "k", axes=[0, 2, 3], keepdims=1),
        node("Sub", "x,k", "d"),
        node("Mul", "d,d", "q"),
        node("ReduceMean", "q", "v", axes=[0, 2, 3], keepdims=0),
        node("BatchNormalization", "x,s,b,m,v", "y"),
    ]
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    text = saw(model(nodes, {"x": (4, 3, 8, 8)}, ["y"], {"s": ones, "b": zeros}), "batch-statistics")
    assert "'m' and 'v' are computed from its batch" in text


def test_a1_16_a1_17_norms_under_fp16() -> None:
    ones, zeros = np.ones(3, np.float32), np.zeros(3, np.float32)
    nodes = [node("Relu", "x", "r"), node("InstanceNormalization", "r,s,b", "y")]
    graph = model(nodes, {"x": (1, 3, 256, 256)}, ["y"], {"s": ones, "b": zeros})
    note = found(graph, "norm-fp16")
    assert note is not None
    assert (note.severity, note.targets) == ("note", ("trt10", "trt11"))
    warned = found(graph, "norm-fp16", ranges={"r": 940.0})
    assert warned is not None
    assert warned.severity == "warning"
    assert "'r', which reaches 940: squares overflow" in warned.places[0].saw
    assert "keep normalisations in float32" in warned.rule.remedy
    assert found(graph, "norm-fp16", ranges={"r": 200.0}) is None


def test_a1_17_decomposed_norms_are_norms() -> None:
    nodes = [
        node("ReduceMean", "x", "m", axes=[-1]),
        node("Sub", "x,m", "d"),
        node("Pow", "d,two", "q"),
        node("ReduceMean", "q", "v", axes=[-1]),
        node("Add", "v,e", "w"),
        node("Sqrt", "w", "r"),
        node("Div", "d,r", "y"),
    ]
    weights = {"two": np.array(2, np.float32), "e": np.array(1e-5, np.float32)}
    graph = model(nodes, {"x": (1, 64, 32)}, ["y"], weights)
    assert "decomposed" in saw(graph, "norm-fp16")
    assert "'d', which reaches 300" in saw(graph, "norm-fp16", ranges={"d": 300.0})
    tiny = model(nodes, {"x": (1, 64, 32)}, ["y"], {**weights, "e": np.array(1e-12, np.float32)})
    assert "1e-12 becomes 0" in saw(tiny, "fp16-constants")
    assert found(graph, "fp16-constants") is None


def test_a1_19_tensors_beyond_fp16_are_printed() -> None:
    graph = model([node("Relu", "x", "a"), node("Relu", "a", "y")], {"x": (1, 3, 8, 8)}, ["y"])
    item = found(graph, "fp16-range", ranges={"a": 65535.0, "x": 65504.0})
    assert item is not None
    assert [(place.name, place.saw) for place in item.places] == [("a", "reaches 65535")]


def test_a1_20_grid_sample_changed_its_names_in_opset_20() -> None:
    item = found(grid_sample(20), "gridsample-opset")
    assert item is not None
    assert item.targets == ("trt10", "trt11")
    assert "opset 16 to 19" in item.rule.remedy
    assert "ONNX Runtime is right" in item.rule.why
    assert found(grid_sample(18), "gridsample-opset") is None


def test_a1_22_a_stride_of_zero_is_an_error() -> None:
    for settings in ({"strides": [0, 0]}, {"strides": [0, 1]}):
        item = found(single("AveragePool", kernel_shape=[2, 2], **settings), "window-invalid")
        assert item is not None
        assert item.severity == "error"
    assert "kernel 0x0" in saw(single("MaxPool", kernel_shape=[0, 0]), "window-invalid")
    assert "a window of 20 on a padded map of 16" in saw(single("AveragePool", kernel_shape=[20, 20]), "window-invalid")


def test_a1_23_a_pool_frozen_at_the_size_of_the_export() -> None:
    fixed = found(single("AveragePool", (1, 64, 25, 29), kernel_shape=[25, 29]), "pool-frozen")
    assert fixed is not None
    assert (fixed.severity, fixed.places[0].saw) == ("note", "kernel 25x29 is the whole map")
    free = found(single("AveragePool", ("N", 64, "H", "W"), kernel_shape=[25, 29], strides=[25, 29]), "pool-frozen")
    assert free is not None
    assert free.severity == "warning"
    assert found(single("AveragePool", ("N", 64, "H", "W"), kernel_shape=[2, 2], strides=[2, 2]), "pool-frozen") is None


def test_a1_25_pads_that_a_parser_may_refuse() -> None:
    reflect = pad((0, 0, 0, 1, 0, 0, 0, 2), mode="reflect", shape=(1, 1, 3, 3))
    assert "mode reflect" in saw(reflect, "pad-mode")
    assert "TensorRT 7 refuses" in saw(reflect, "pad-mode")
    assert found(reflect, "pad-mode", targets=("ort",)) is None
    assert "value 0.5" in saw(pad((0, 0, 1, 1, 0, 0, 1, 1), value=0.5), "pad-mode")
    assert found(pad((0,) * 8, mode="reflect"), "pad-mode") is None


def drop(graph: onnx.ModelProto) -> None:
    kept = [item for item in graph.graph.node[0].attribute if item.name != "output_padding"]
    del graph.graph.node[0].attribute[:]
    graph.graph.node[0].attribute.extend(kept)


def test_a1_26_output_padding_is_kept_and_checked() -> None:
    graph = deconv(28, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    assert run(graph, {"x": np.zeros((1, 4, 28, 28), np.float32)})[0].shape[2:] == (56, 56)
    assert "makes 56x56" in saw(graph, "convtranspose-output-padding")
    dropped = edited(graph, drop)
    item = found(dropped, "convtranspose-output-padding")
    assert item is not None
    assert item.severity == "error"
    assert item.places[0].saw == "makes 55x55 by its settings, 56x56 as the file declares"


def test_a1_28_same_padding_with_output_padding() -> None:
    item = found(deconv(3, strides=[2, 2], auto_pad="SAME_UPPER", output_padding=[1, 1]), "convtranspose-auto-pad")
    assert item is not None
    assert item.severity == "warning"
    assert "write explicit pads" in item.rule.remedy


def test_a1_29_softmax_below_opset_13_flattens() -> None:
    graph = single("Softmax", (2, 3, 4), opset=12, axis=1)
    values = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    made = run(graph, {"x": values})[0]
    assert np.allclose(made.sum((1, 2)), 1, atol=1e-6)
    text = saw(graph, "softmax-flatten")
    assert "normalises over axes 1 to 2 together" in text
    assert "editing its number changes what is computed" in text
    for harmless in ((2, 3, 1, 1), (2, 3)):
        assert found(single("Softmax", harmless, opset=11, axis=1), "softmax-flatten") is None
    assert found(single("Softmax", (2, 3, 4), opset=13, axis=1), "softmax-flatten") is None


def test_operators_of_the_present_are_no_errors_of_the_past() -> None:
    swish = model([node("Swish", "x", "y")], {"x": (1, 3, 8, 8)}, ["y"], opset=24)
    item = found(swish, "trt-operator")
    assert item is not None
    assert dict(item.levels) == {"trt10": "error"}
    assert item.places[0].saw == "Swish needs TensorRT 11.0"


def test_a_number_that_was_edited_is_found() -> None:
    graph = edited(
        model(
            [node("Upsample", "x,s", "y", mode="linear")],
            {"x": (1, 3, 8, 8)},
            ["y"],
            {"s": np.ones(4, np.float32)},
            opset=9,
        ),
        lambda made: made.opset_import[0].CopyFrom(helper.make_opsetid("", 13)),
    )
    item = found(graph, "onnx-schema")
    assert item is not None
    assert item.severity == "error"
    assert "removed by opset 10" in item.places[0].saw


def test_folding_is_blocked_by_a_second_reader() -> None:
    alone, shared = found(conv_bn(), "batchnorm-unfused"), found(conv_bn(other_reader=True), "batchnorm-unfused")
    assert alone is not None
    assert shared is not None
    assert (alone.severity, shared.severity) == ("note", "warning")


def test_weights_among_the_inputs_say_how_many() -> None:
    assert "1 of 1 initialisers ('w')" in saw(edited(conv(), listed), "initializer-inputs")


def test_a_fault_with_consequences_is_reported_at_its_root() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s,i", "n"),
        node("Concat", "n,n", "t", axis=2),
        node("Resize", "x,,,t", "y", mode="linear"),
    ]
    graph = model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"i": np.array([0, 1], np.int64)})
    item = found(graph, "shape-inference")
    assert item is not None
    assert (item.names, item.places[0].saw) == (("n_t",), "axis must be in [-rank, rank-1].")
