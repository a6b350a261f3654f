"""INT8 arithmetic against ONNX Runtime and by law."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto

from calib.core.quantization import (
    DEAD_AMAX,
    SCALE_FLOOR,
    fake_quantize,
    quantize,
    round_to,
    scale_from_amax,
    weight_amax,
)
from calib.errors import StatisticsError
from tests.graphs import model, node, run


def test_scale_is_amax_over_127_in_float32():
    assert scale_from_amax(1.0) == np.float32(1.0 / 127)
    expected = (np.array([2.0, 4.0]) / 127).astype(np.float32)
    np.testing.assert_array_equal(scale_from_amax(np.array([2.0, 4.0])), expected)


def test_a2_5_dead_channels_get_a_floor_and_tiny_ones_do_not_underflow():
    scales = scale_from_amax(np.array([0.0, 1e-300, 1e-6, 3.0]))
    assert scales[0] == np.float32(DEAD_AMAX / 127)
    assert scales[1] == SCALE_FLOOR["float32"]
    assert (scales > 0).all()
    assert np.float32(SCALE_FLOOR["float32"]) * np.float32(SCALE_FLOOR["float32"]) >= np.finfo(np.float32).tiny


def test_a2_28_tiny_channels_survive_float16():
    scales = scale_from_amax(np.array([1e-6, 1.0]), "float16")
    assert np.float16(1e-6) / np.float16(127) == np.float16(0), "what happens in the narrow type"
    assert (scales.astype(np.float16) > 0).all()
    np.testing.assert_array_equal(scales, scales.astype(np.float16).astype(np.float64))


@pytest.mark.parametrize("amax", [-1.0, np.inf, np.nan, np.array([1.0, -2.0])])
def test_bad_ranges_are_errors(amax):
    with pytest.raises(StatisticsError, match="amax finite"):
        scale_from_amax(amax)


def test_bfloat16_rounds_to_nearest_even():
    import ml_dtypes

    values = np.random.default_rng(0).normal(size=1000)
    expected = values.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(round_to(values, "bfloat16"), expected)


def test_weight_amax_per_axis_and_faults():
    weight = np.array([[1.0, -2.0], [0.0, 0.0]], np.float16)
    np.testing.assert_array_equal(weight_amax(weight, 0), [2.0, 0.0])
    np.testing.assert_array_equal(weight_amax(weight, -1), [1.0, 2.0])
    assert weight_amax(weight, None) == 2.0
    with pytest.raises(StatisticsError, match="1 NaN or infinite"):
        weight_amax(np.array([1.0, np.nan]), None)


def test_ties_round_to_even_and_values_saturate():
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1000.0, -1000.0, np.inf, -np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(quantize(values, 1.0), [0, 2, 2, 0, -2, 127, -128, 127, -128, 0])


@pytest.mark.parametrize("axis", [None, 0, 2])
def test_fake_quantization_equals_onnx_runtime(axis):
    rng = np.random.default_rng(3)
    values = rng.normal(size=(4, 5, 6)).astype(np.float32)
    scale = scale_from_amax(weight_amax(values * 0.7, axis)).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    graph = model(
        [node("QuantizeLinear", "x,s,z", "q", **attributes), node("DequantizeLinear", "q,s,z", "y", **attributes)],
        {"x": values.shape},
        ["y"],
        {"s": scale, "z": np.zeros(scale.shape, np.int8)},
        output_type=TensorProto.FLOAT,
    )
    np.testing.assert_array_equal(run(graph, {"x": values})[0], fake_quantize(values, scale, axis))


@given(st.floats(1e-6, 1e6), st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=20))
@settings(deadline=None)
def test_error_is_at_most_half_a_step_inside_the_range(amax, shares):
    scale = float(scale_from_amax(amax))
    values = (np.array(shares) * amax).astype(np.float32)
    error = np.abs(fake_quantize(values, scale).astype(np.float64) - values)
    assert (error <= scale * 0.5 * (1 + 1e-5) + 1e-30).all()


def test_half_precision_scales_are_those_of_the_cache_rounded():
    amax = 127 * (1 + 2.0**-11) * (1 + 2.0**-30)  # a hair above halfway between two float16 numbers
    through_cache = float(np.float16(np.float32(amax / 127)))
    assert float(scale_from_amax(amax, "float16")) == through_cache == 1.0
    assert float(np.float16(amax / 127)) == 1 + 2.0**-10
