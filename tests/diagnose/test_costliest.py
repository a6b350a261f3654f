"""Where the error of INT8 comes from when every range fits; and batch norms that only one side has apart."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.difference import difference
from calib.jobs.diagnose.verdict import decide
from calib.stages.diagnose.ladder import Rung, Standing
from calib.stages.qdq import quantize_model
from calib.types.diagnosis import Cause
from tests.diagnose import edits
from tests.diagnose.nets import examined, net, node, noise
from tests.graphs import minmax


def depthwise(spread: float, layers: int = 4) -> onnx.ModelProto:
    """Depthwise layers in a row; one channel of the first tensor is ``spread`` times the others, and counts little."""
    rng = np.random.default_rng(0)
    weights = {"w0": rng.normal(0, 1, (8, 3, 1, 1)).astype(np.float32)}
    weights["w0"][5] *= spread
    nodes, last = [node("Conv", ["x", "w0"], "t0")], "t0"
    for index in range(1, layers):
        weights[f"w{index}"] = rng.normal(0, 1, (8, 1, 3, 3)).astype(np.float32)
        nodes.append(node("Conv", [last, f"w{index}"], f"t{index}", group=8, pads=[1, 1, 1, 1]))
        last = f"t{index}"
    weights["w1"][5] /= spread
    weights["wy"] = rng.normal(0, 1, (2, 8, 1, 1)).astype(np.float32)
    return net([*nodes, node("Conv", [last, "wy"], "y")], (1, 3, 24, 24), weights)


def quantized(graph: onnx.ModelProto, x: np.ndarray) -> onnx.ModelProto:
    return quantize_model(graph, minmax(graph, {"x": x})).model


def test_the_tensor_of_unlike_channels_is_named_with_its_readers() -> None:
    x = noise(1, 3, 24, 24)
    graph = depthwise(200.0)
    found = examined(graph, quantized(graph, x), x)
    assert not found.causes
    first = next(item for item in found.remarks if item.stage == "quantization")
    assert (first.kind, first.tensor, first.node) == ("activation-uneven", "t0", "Conv_t1")
    assert first.severity == "remark"
    assert first.impact is not None
    assert first.impact > 0.5
    assert "of 127 levels" in first.evidence[0]


def test_a_network_of_even_channels_has_no_such_remark() -> None:
    x = noise(1, 3, 24, 24)
    graph = depthwise(1.0)
    found = examined(graph, quantized(graph, x), x)
    assert not [item for item in (*found.causes, *found.remarks) if item.stage == "quantization"]


def test_a_faulty_range_is_a_cause_and_no_remark() -> None:
    x = noise(1, 3, 24, 24)
    graph = depthwise(1.0)
    ranges = minmax(graph, {"x": x})
    ranges["t1"] /= 30
    found = examined(graph, quantize_model(graph, ranges).model, x)
    assert [item.tensor for item in found.causes] == ["t1"]
    assert not [item for item in found.remarks if item.kind.startswith("activation-")]


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose", "grouped", "Gemm"])
def test_a_norm_that_the_writer_folded_is_no_departure(kind: str) -> None:
    rng = np.random.default_rng(2)
    channels = 6
    norm = {name: rng.normal(0, 1, channels).astype(np.float32) for name in ("gamma", "beta", "mean")}
    weights = {**norm, "var": rng.uniform(0.1, 3, channels).astype(np.float32)}
    if kind == "Gemm":
        weights |= {"w": rng.normal(0, 1, (channels, 4)).astype(np.float32), "b": np.float32(0.5)}
        layer, shape = node("Gemm", ["x", "w", "b"], "h", transB=1, beta=2.0), (8, 4)
    elif kind == "Conv":
        weights["w"] = rng.normal(0, 1, (channels, 4, 3, 3)).astype(np.float32)
        layer, shape = node("Conv", ["x", "w"], "h"), (1, 4, 9, 9)
    else:
        group = 2 if kind == "grouped" else 1
        weights["w"] = rng.normal(0, 1, (4, channels // group, 2, 2)).astype(np.float32)
        layer, shape = node("ConvTranspose", ["x", "w"], "h", strides=[2, 2], group=group), (1, 4, 9, 9)
    weights["wy"] = rng.normal(0, 1, (channels, 2) if kind == "Gemm" else (2, channels, 1, 1)).astype(np.float32)
    nodes = [
        layer, node("BatchNormalization", ["h", "gamma", "beta", "mean", "var"], "n"), node("Relu", ["n"], "r"),
        node("Gemm" if kind == "Gemm" else "Conv", ["r", "wy"], "y"),
    ]  # fmt: skip
    graph = net(nodes, shape, weights)
    x = noise(*shape)
    made = quantize_model(graph, minmax(graph, {"x": x}), "ort").model
    assert "BatchNormalization" not in {item.op_type for item in made.graph.node}
    found = examined(graph, made, x)
    assert not found.causes, [item.title for item in found.causes]
    assert not [item for item in found.remarks if item.stage == "export"], found.remarks
    matched = found.comparison.alignment.matches
    assert matched["n"].reference == "n"


def test_channels_next_to_nothing_are_no_overflow() -> None:
    """The ratio of a weight's channels may leave float32's range; warnings are errors here."""
    x = noise(1, 3, 24, 24)
    graph = depthwise(1.0)
    stored = next(item for item in graph.graph.initializer if item.name == "w0")
    weight = onnx.numpy_helper.to_array(stored).copy()
    weight[0] = 1e-44
    stored.CopyFrom(onnx.numpy_helper.from_array(weight, "w0"))
    found = examined(graph, quantized(graph, x), x)
    assert not found.causes


def test_a_wide_range_of_a_tensor_that_is_mostly_zero_is_found() -> None:
    """Zeros are exact on any grid, so that the error says little of the range."""
    graph = depthwise(1.0)
    nodes = list(graph.graph.node)
    shift = onnx.numpy_helper.from_array(np.full((1, 8, 1, 1), -3.5, np.float32), "shift")
    graph.graph.initializer.append(shift)
    place = next(index for index, item in enumerate(nodes) if item.output[0] == "t1")
    sparse = [node("Add", ["t1", "shift"], "low"), node("Relu", ["low"], "few")]
    for item in nodes[place + 1 :]:
        item.input[0] = "few" if item.input[0] == "t1" else item.input[0]
    del graph.graph.node[:]
    graph.graph.node.extend([*nodes[: place + 1], *sparse, *nodes[place + 1 :]])
    x = noise(1, 3, 24, 24)
    ranges = minmax(graph, {"x": x})
    sound = examined(graph, quantize_model(graph, ranges).model, x)
    assert not sound.causes
    ranges["few"] *= 4
    found = examined(graph, quantize_model(graph, ranges).model, x)
    assert [(item.kind, item.tensor) for item in found.causes] == [("range-coarse", "few")]


def saturated() -> onnx.ModelProto:
    """A network whose Sigmoid is far from zero: it hides whatever happens before."""
    graph = depthwise(1.0)
    graph.graph.node[-1].output[0] = "scores"
    graph.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(60), "far"))
    graph.graph.node.extend([node("Add", ["scores", "far"], "moved"), node("Sigmoid", ["moved"], "y")])
    return graph


def test_scores_are_judged_before_what_saturates() -> None:
    graph, x = saturated(), noise(1, 3, 24, 24)
    ranges = minmax(graph, {"x": x})
    ranges["t2"] *= 20
    found = examined(graph, quantize_model(graph, ranges).model, x)
    assert "t2" in {item.tensor for item in found.causes}


def test_a_pair_behind_what_saturates_is_judged_too() -> None:
    graph, x = saturated(), noise(1, 3, 24, 24)
    made = edits.pair_at(quantize_model(graph, minmax(graph, {"x": x})).model, "y", 0.01, ()).model
    found = examined(graph, made, x)
    assert [item.tensor for item in found.causes][:1] == ["y/inner"]


@pytest.mark.parametrize("scale", [np.inf, np.nan, -1.0])
def test_a_scale_that_is_none_is_named(scale: float) -> None:
    x = noise(1, 3, 24, 24)
    graph = depthwise(1.0)
    made = quantized(graph, x)
    stored = next(item for item in made.graph.initializer if item.name == "t1_scale")
    stored.CopyFrom(onnx.numpy_helper.from_array(np.float32(scale), "t1_scale"))
    found = examined(graph, made, x)
    assert ("bad-scale", "t1") in {(item.kind, item.tensor) for item in found.causes}


def test_the_verdict_names_the_tensors_and_the_flips_that_points_hide() -> None:
    step = difference(np.array([1.0, 2.0]), np.array([1.5, 0.5]))
    below = Standing(Rung("optimized", "", "runtime"), step, step, 0.0, 0.0, accuracy={"miou": 0.48})
    rung = Rung("fake-quant", "", "quantization", "optimized")
    standing = Standing(rung, step, step, 0.04, 0.04, accuracy={"miou": 0.49})
    remark = Cause("quantization", "activation-uneven", "", "Conv_1", "t0", severity="remark")
    words = decide([], [below, standing], [remark]).words
    assert "costs no mIoU (+1.00 points), though 4.00% of the pixels change class" in words
    assert "most of the error comes from t0, where one scale serves channels of unlike range" in words
    assert "spread over the network" in decide([], [below, standing]).words
