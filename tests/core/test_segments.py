"""Segments: every node runs once, what is observed stays the same, and no segment holds more than the budget."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.core.graph import analyse
from calib.core.segments import Segment, concrete_shapes, cut, tensor_bytes
from calib.edges.runners.ort import OrtChain
from tests.builds import parsed, weight

SKIPS = """
    a = Conv <pads = [1,1,1,1]> (image, w0)
    b = Relu (a)
    c = Conv <pads = [1,1,1,1]> (b, w1)
    two = Constant <value = float {2.0}> ()
    d = Mul (c, two)
    e = Add (d, b)
    s = Shape (image)
    f = Conv <pads = [1,1,1,1]> (e, w1)
    g = Reshape (f, s8)
    h = Add (g, a)
    logits = Conv (h, w2)
"""
WEIGHTS = {"w1": weight(8, 8, 3, 3, seed=1), "s8": np.array([0, 8, 16, 16])}
BRANCH = """
    a = Conv <pads = [1,1,1,1]> (image, w0)
    m = ReduceMax <keepdims = 0> (a)
    high = Greater (m, limit)
    b = If (high) <
        then_branch = t () => (float[N,8,16,16] y) { y = Relu (a) },
        else_branch = e () => (float[N,8,16,16] y) { y = Identity (a) }
    >
    c = Relu (b)
    d = Sigmoid (c)
    logits = Conv (d, w2)
"""


def segments_of(model: onnx.ModelProto, budget: int) -> tuple[tuple[Segment, ...], list[str], dict[str, int]]:
    network = analyse(model)
    names = [item.name for item in network.activations if item.producer is not None]
    shapes = concrete_shapes(model, {"image": (1, 3, 16, 16)})
    sizes = tensor_bytes(network, shapes)
    return cut(model, network, names, sizes, budget), names, sizes


MODELS = [parsed(SKIPS, WEIGHTS), parsed(BRANCH, {"limit": np.float32(0.1)})]


IMAGE = np.random.default_rng(0).random((1, 3, 16, 16)).astype(np.float32)


@pytest.mark.parametrize("model", MODELS, ids=["skips", "branch"])
@pytest.mark.parametrize("tensors", [1, 2, 3, 100])
def test_a_chain_observes_what_the_whole_network_does(model: onnx.ModelProto, tensors: int) -> None:
    budget = tensors * 8 * 16 * 16 * 4
    segments, names, _ = segments_of(model, budget)
    (whole,), _, _ = segments_of(model, 1 << 40)
    assert (len(segments) > 1) == (tensors < 4)
    exact = OrtChain([whole], "net").run({"image": IMAGE})
    found = OrtChain(segments, "net").run({"image": IMAGE})
    assert list(found) == [name for name in names if name in found]
    assert set(found) == set(names)
    for name in names:
        np.testing.assert_allclose(found[name], exact[name], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("model", MODELS, ids=["skips", "branch"])
def test_every_node_on_activations_runs_once(model: onnx.ModelProto) -> None:
    segments, _, _ = segments_of(model, 8 * 16 * 16 * 4)
    made = Counter(output for segment in segments for node in segment.model.graph.node for output in node.output)
    network = analyse(model)
    activations = {item.name for item in network.activations if item.producer is not None}
    assert all(made[name] == 1 for name in activations)


@pytest.mark.parametrize("tensors", [1, 2, 3])
def test_no_segment_observes_more_than_the_budget(tensors: int) -> None:
    budget = tensors * 8 * 16 * 16 * 4
    segments, _, sizes = segments_of(parsed(SKIPS, WEIGHTS), budget)
    assert all(sum(sizes[name] for name in segment.observed) <= budget for segment in segments)


def test_segments_are_networks_that_the_checker_accepts() -> None:
    segments, _, _ = segments_of(parsed(SKIPS, WEIGHTS), 8 * 16 * 16 * 4)
    for segment in segments:
        assert {item.name for item in segment.model.graph.initializer} <= {"w0", "w1", "w2", "s8"}
        OrtChain([Segment(segment.model, segment.observed)], "part")


def test_shapes_follow_from_the_input_and_not_from_what_the_file_says() -> None:
    model = parsed("a = Conv <pads = [1,1,1,1]> (image, w0)\n logits = Conv (a, w2)", inputs="float[N,3,H,W] image",
                   outputs="float[N,3,H,W] logits")  # fmt: skip
    model.graph.value_info.append(onnx.helper.make_tensor_value_info("a", onnx.TensorProto.FLOAT, [1, 8, 512, 512]))
    shapes = concrete_shapes(model, {"image": (1, 3, 16, 16)})
    assert shapes["a"] == (1, 8, 16, 16)
    assert shapes["logits"] == (1, 3, 16, 16)


def test_a_network_that_keeps_sequences_is_cut_around_them() -> None:
    body = """
        a = Conv <pads = [1,1,1,1]> (image, w0)
        b = Relu (a)
        s = SequenceConstruct (a, b)
        c = ConcatFromSequence <axis = 1> (s)
        d = Relu (c)
        logits = Conv (d, w3)
    """
    model = parsed(body, {"w3": weight(3, 16, 1, 1)})
    segments, _, _ = segments_of(model, 8 * 16 * 16 * 4)
    for segment in segments:
        assert not any(value.type.HasField("sequence_type") for value in segment.model.graph.input)
        inside = {output for node in segment.model.graph.node for output in node.output}
        assert "s" not in inside or "c" in inside


@pytest.mark.parametrize("name", ["deeplabv3plus_mnv2", "unetpp_se"])
def test_camvid_networks(name: str, shared: Path) -> None:
    model = onnx.load(shared / "models" / f"{name}.onnx")
    network = analyse(model)
    (entry,) = network.inputs
    image = np.random.default_rng(1).standard_normal((1, 3, 352, 480)).astype(np.float32)
    names = [item.name for item in network.activations if item.producer is not None]
    sizes = tensor_bytes(network, concrete_shapes(model, {entry.name: image.shape}))
    assert set(names) <= set(sizes)
    budget = sum(sizes[item] for item in names) // 5
    segments = cut(model, network, names, sizes, budget)
    assert 5 <= len(segments) <= 11
    chain = OrtChain(segments, name)
    whole = OrtChain(cut(model, network, names, sizes, 1 << 40), name)
    exact, found = whole.run({entry.name: image}), chain.run({entry.name: image})
    for item in names:
        scale = float(np.abs(exact[item]).max())
        np.testing.assert_allclose(found[item], exact[item], rtol=1e-4, atol=1e-4 * scale)
