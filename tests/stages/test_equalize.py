"""Cross-layer equalization changes weights and nothing that the network computes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from calib.edges.models import load_model
from calib.errors import ModelError
from calib.stages.equalize import equalize
from tests.graphs import activations, feeds, model, node, run, weight

X = {"x": (1, 6, 10, 10)}


def conv(source, out, w, **attributes):
    return node("Conv", f"{source},{w}", out, **attributes)


def uneven(*shape, seed=0):
    """Draw a weight whose output channels differ 1000:1."""
    w = weight(*shape, seed=seed)
    spread = np.logspace(0, 3, shape[0]).astype(np.float32)
    return w / np.abs(w).reshape(shape[0], -1).max(1).reshape(-1, 1, 1, 1) * spread.reshape(-1, 1, 1, 1)


def triplet():
    nodes = [
        node("Conv", "x,expand,b1", "e"),
        node("Relu", "e", "er"),
        node("Conv", "er,dw,b2", "d", group=16, pads=[1, 1, 1, 1]),
        node("LeakyRelu", "d", "dr", alpha=0.1),
        conv("dr", "y", "project"),
    ]
    weights = {
        "expand": uneven(16, 6, 1, 1),
        "b1": weight(16),
        "dw": uneven(16, 1, 3, 3, seed=1),
        "b2": weight(16, seed=2),
        "project": weight(5, 16, 1, 1, seed=3),
    }
    return model(nodes, X, ["y"], weights)


def stored(graph):
    return {item.name: numpy_helper.to_array(item) for item in graph.graph.initializer}


def ranges_between(graph, first, second, per_input):
    values = stored(graph)
    made = np.abs(values[first]).reshape(values[first].shape[0], -1).max(1)
    return made, per_input(np.abs(values[second]))


def test_powers_of_two_compute_the_same_bits():
    graph = triplet()
    before = graph.SerializeToString()
    result = equalize(graph)
    assert graph.SerializeToString() == before
    assert [(pair.first, pair.second) for pair in result.pairs] == [("n_e", "n_d"), ("n_d", "n_y")]
    values = feeds(graph)
    np.testing.assert_array_equal(run(result.model, values)[0], run(graph, values)[0])
    onnx.checker.check_model(result.model, full_check=True)
    assert any((pair.factors != 1).any() for pair in result.pairs)


def test_channel_statistics_rescale_exactly():
    graph = triplet()
    result = equalize(graph)
    values = feeds(graph)
    before, after = activations(graph, values), activations(result.model, values)
    assert set(result.factors) == {"e", "er", "d", "dr"}
    for name, factors in result.factors.items():
        np.testing.assert_array_equal(after[name], before[name] * factors.reshape(1, -1, 1, 1).astype(np.float32))


def test_ranges_of_the_shared_channels_become_equal():
    graph = triplet()
    result = equalize(graph, power_of_two=False, limit=1e6, sweeps=200)
    made, read = ranges_between(result.model, "dw", "project", lambda w: w.reshape(5, 16).max(0))
    np.testing.assert_allclose(made, read, rtol=0.01)
    made, read = ranges_between(result.model, "expand", "dw", lambda w: w.reshape(16, -1).max(1))
    np.testing.assert_allclose(made, read, rtol=0.01)
    rounded = equalize(graph, limit=1e6, sweeps=200)
    made, read = ranges_between(rounded.model, "dw", "project", lambda w: w.reshape(5, 16).max(0))
    assert np.abs(np.log2(made / read)).max() <= 2.0
    values = feeds(graph)
    np.testing.assert_allclose(run(result.model, values)[0], run(graph, values)[0], rtol=1e-3, atol=1e-2)


def test_single_pair_takes_the_papers_factor():
    weights = {"a": uneven(8, 6, 1, 1), "b": weight(4, 8, 1, 1)}
    graph = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y"], weights)
    (pair,) = equalize(graph, power_of_two=False, limit=1e9).pairs
    r1 = np.abs(weights["a"]).reshape(8, -1).max(1)
    r2 = np.abs(weights["b"]).reshape(4, 8).max(0)
    np.testing.assert_allclose(pair.factors, 1 / np.sqrt(r1 / r2), rtol=1e-6)


@pytest.mark.parametrize(
    "between",
    [
        [node("Identity", "h", "m")],
        [node("PRelu", "h,slope", "m")],
        [node("Relu", "h", "r"), node("MaxPool", "r", "m", kernel_shape=[2, 2])],
        [node("AveragePool", "h", "m", kernel_shape=[3, 3], pads=[1, 1, 1, 1])],
        [node("Pad", "h,pads", "m", mode="reflect")],
        [node("Dropout", "h", "m")],
    ],
)
def test_homogeneous_operators_let_equalization_through(between):
    every = {
        "a": uneven(8, 6, 1, 1),
        "b": weight(6, 4, 3, 3),
        "slope": np.linspace(0.1, 0.9, 8, dtype=np.float32).reshape(8, 1, 1),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }
    nodes = [conv("x", "h", "a"), *between, conv("m", "y", "b", group=2)]
    used = {name for item in nodes for name in item.input}
    graph = model(nodes, X, ["y"], {name: value for name, value in every.items() if name in used})
    result = equalize(graph)
    assert len(result.pairs) == 1
    values = feeds(graph)
    np.testing.assert_array_equal(run(result.model, values)[0], run(graph, values)[0])


@pytest.mark.parametrize(
    ("nodes", "reason"),
    [
        ([conv("x", "h", "a"), node("Clip", "h,zero,six", "m"), conv("m", "y", "b")], "Clip"),
        ([conv("x", "h", "a"), node("HardSwish", "h", "m"), conv("m", "y", "b")], "HardSwish"),
        ([conv("x", "h", "a"), node("Add", "h,h", "m"), conv("m", "y", "b")], "2 consumers"),
        ([conv("x", "h", "a"), node("Pad", "h,pads,six", "m"), conv("m", "y", "b")], "Pad"),
        ([conv("x", "h", "a"), conv("h", "y", "k")], "shared or computed"),
        ([conv("x", "h", "k"), conv("h", "m", "c"), node("Neg", "k", "y")], "shared or computed"),
    ],
)
def test_what_stands_in_the_way_is_named(nodes, reason):
    every = {
        "a": uneven(8, 6, 1, 1),
        "b": weight(4, 8, 1, 1),
        "c": weight(4, 8, 1, 1),
        "k0": weight(8, 6, 1, 1),
        "zero": np.float32(0),
        "six": np.float32(6),
        "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }
    computed = [node("Identity", "k0", "k")] if any("k" in item.input for item in nodes) else []
    if computed and nodes[1].input[1] == "k":
        computed = [node("Transpose", "k0", "k", perm=[1, 0, 2, 3])]
    whole = [*computed, *nodes]
    used = {name for item in whole for name in item.input}
    graph = model(whole, X, ["y"], {name: value for name, value in every.items() if name in used})
    result = equalize(graph)
    assert result.pairs == ()
    assert reason in dict(result.skipped)["n_h"]
    assert result.model.SerializeToString() == graph.SerializeToString()


def test_dead_channels_and_outputs_are_left_alone():
    a, b = uneven(8, 6, 1, 1), weight(4, 8, 1, 1)
    a[3], b[:, 5] = 0, 0
    graph = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y"], {"a": a, "b": b})
    (pair,) = equalize(graph).pairs
    assert pair.factors[3] == pair.factors[5] == 1
    seen = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y", "h"], {"a": a, "b": b})
    assert equalize(seen).pairs == ()


def test_limit_bounds_the_factors():
    a = uneven(8, 6, 1, 1)
    a[0] *= 1e-9
    graph = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y"], {"a": a, "b": weight(4, 8, 1, 1)})
    (pair,) = equalize(graph, limit=16.0).pairs
    assert pair.factors.max() == 16.0


def test_float16_keeps_its_type():
    weights = {"a": uneven(8, 6, 1, 1).astype(np.float16), "b": weight(4, 8, 1, 1, dtype=np.float16)}
    graph = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y"], weights, elem_type=TensorProto.FLOAT16)
    result = equalize(graph)
    assert {item.data_type for item in result.model.graph.initializer} == {TensorProto.FLOAT16}
    values = feeds(graph, scale=0.1)
    np.testing.assert_allclose(run(result.model, values)[0], run(graph, values)[0], rtol=2e-2, atol=2e-2)


def test_faulty_weights_are_named():
    graph = model([conv("x", "h", "a"), conv("h", "y", "b")], X, ["y"],
                  {"a": np.full((8, 6, 1, 1), np.nan, np.float32), "b": weight(4, 8, 1, 1)})  # fmt: skip
    with pytest.raises(ModelError, match="weight 'a'"):
        equalize(graph)


@pytest.mark.parametrize(
    "path",
    ["models/deeplabv3plus_mnv2.onnx", "cases/models/twinlitenet_opset14.onnx", "cases/models/unet_small_opset18.onnx"],
)
def test_real_networks_compute_the_same(shared, path):
    graph = load_model(shared / path)
    result = equalize(graph)
    assert result.pairs or result.skipped
    values = feeds(graph, size=1)
    for found, expected in zip(run(result.model, values), run(graph, values), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
