"""Cache entries cover every float activation, and the coverage says what is left."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from calib.core.graph import analyse
from calib.core.quantization import DEAD_AMAX, SCALE_FLOOR
from calib.core.trtcache import parse, render
from calib.edges.models import load_model
from calib.errors import StatisticsError
from calib.stages.cachefile import cache_entries
from calib.types.statistics import DynamicRange
from tests.graphs import feeds, minmax, model, node, weight


def ranges_of(amax):
    return {name: DynamicRange(value) for name, value in amax.items()}


@pytest.fixture
def network():
    nodes = [
        node("Conv", "x,w", "conv"),
        node("Relu", "conv", "relu"),
        node("Mul", "relu,two", "scaled"),
        node("ArgMax", "scaled", "labels", axis=1),
        node("Greater", "scaled,two", "mask"),
    ]
    graph = model(
        nodes,
        {"x": (1, 3, 8, 8)},
        ["labels", "scaled"],
        {"w": weight(4, 3, 1, 1), "two": np.float32(2)},
        output_type=TensorProto.INT64,
    )
    graph.graph.output[1].type.tensor_type.elem_type = TensorProto.FLOAT
    return analyse(graph)


def test_a2_16_a2_25_every_float_activation_outputs_included_in_network_order(network):
    entries, coverage = cache_entries(network, ranges_of({"scaled": 4, "relu": 2, "conv": 3, "x": 1}))
    assert [name for name, _ in entries] == ["x", "conv", "relu", "scaled"]
    assert coverage.complete
    assert {item.name: item.reason for item in coverage.not_covered} == {"labels": "integer", "mask": "bool"}
    assert coverage.unnamed_constants == ("n_scaled",)
    assert entries[0][1] == np.float32(1 / 127)


def test_a2_4_dead_and_tiny_tensors_get_a_floor_and_are_listed(network):
    entries, coverage = cache_entries(network, ranges_of({"x": 1, "conv": 0.0, "relu": 1e-300, "scaled": 2}))
    scales = dict(entries)
    assert scales["conv"] == np.float32(DEAD_AMAX / 127)
    assert scales["relu"] == SCALE_FLOOR["float32"]
    assert (coverage.dead, coverage.floored) == (("conv",), ("relu",))
    assert all(0 < entry.scale < np.inf for entry in parse(render(entries, "8.6.1").render()).entries)


def test_a2_28_tiny_values_keep_their_scale(network):
    entries, coverage = cache_entries(network, ranges_of({"x": 1, "conv": 1e-6, "relu": 1, "scaled": 2}))
    assert dict(entries)["conv"] == pytest.approx(1e-6 / 127, rel=1e-7)
    assert coverage.floored == ()


def test_a2_29_never_observed_is_not_dead_and_gets_no_made_up_scale(network):
    ranges = ranges_of({"x": 1, "conv": 0.0, "relu": 0.0})
    entries, coverage = cache_entries(network, ranges, never_observed={"relu"})
    assert coverage.never_observed == ("relu", "scaled")
    assert coverage.dead == ("conv",)
    assert not coverage.complete
    assert "relu" not in dict(entries)
    assert any("never observed" in line and "relu" in line for line in coverage.lines())


@pytest.mark.parametrize("amax", [np.inf, np.nan, -1.0])
def test_a2_2_faulty_ranges_name_their_tensor(network, amax):
    with pytest.raises(StatisticsError, match="'relu'"):
        cache_entries(network, ranges_of({"x": 1, "conv": 1, "relu": amax, "scaled": 1}))


def test_ranges_of_another_network_are_listed(network):
    _, coverage = cache_entries(network, ranges_of({"x": 1, "other": 2}))
    assert coverage.foreign == ("other",)


def test_tensors_of_unknown_type_count_only_when_the_runtime_saw_them():
    custom = helper.make_node("Magic", ["x"], ["m"], domain="acme")
    graph = model([custom, node("Neg", "x", "y")], {"x": (1, 3)}, ["y"], opsets=[helper.make_opsetid("acme", 1)])
    network = analyse(graph)
    _, coverage = cache_entries(network, ranges_of({"x": 1, "y": 1}))
    assert coverage.complete
    entries, _ = cache_entries(network, ranges_of({"x": 1, "m": 1, "y": 1}))
    assert [name for name, _ in entries] == ["x", "m", "y"]


@pytest.mark.parametrize(
    "path",
    ["models/deeplabv3plus_mnv2.onnx", "cases/models/selfie_nhwc_opset11.onnx", "cases/models/unet_small_opset18.onnx"],
)
def test_a2_16_real_networks_are_covered_whole(shared, path):
    graph = load_model(shared / path)
    amax = minmax(graph, feeds(graph, size=1))
    entries, coverage = cache_entries(analyse(graph), ranges_of(amax))
    assert coverage.complete
    assert {name for name, _ in entries} >= set(amax)
    assert parse(render(entries, "10.14.1").render()).scales == dict(entries)
