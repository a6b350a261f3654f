"""State dicts whose ranges cannot be meant: what is wrong is a remark that blocks, not a silent correction."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from calib.core.formats.statedict import NPZ, table_of
from calib.types.rangetable import RangeTable

WEIGHT = np.random.default_rng(0).normal(size=(6, 4, 3, 3)).astype(np.float32)
AMAX = np.abs(WEIGHT).max((1, 2, 3), keepdims=True)


def read(activation: Any = 3.0, weight: Any = AMAX) -> RangeTable:
    state = {
        "conv.input_quantizer._amax": np.asarray(activation, np.float32),
        "conv.weight_quantizer._amax": np.asarray(weight, np.float32),
        "conv.weight": WEIGHT,
    }
    return table_of(state, NPZ, "state.npz")


def faults(weight: Any) -> list[str]:
    table = read(weight=weight)
    found = [item for item in table.remarks if item.code == "weight_range"]
    assert all(item.blocks and item.names == ("conv.weight_quantizer",) for item in found)
    assert bool(found) != bool(table.weights), "a range that is wrong is not handed on"
    return [item.text for item in found]


@pytest.mark.parametrize("weight", [AMAX, AMAX.reshape(-1), AMAX.max(), AMAX * 0.5, AMAX.max().reshape(1)])
def test_sound_ranges_of_weights_raise_nothing(weight: Any) -> None:
    assert faults(weight) == []


@pytest.mark.parametrize("factor", [-1.0, np.nan, np.inf])
def test_no_weight_range_is_negative_or_not_finite(factor: float) -> None:
    assert faults(AMAX * factor) == ["hold ranges that are negative, infinite or NaN"]


@pytest.mark.parametrize("shape", [(5, 1, 1, 1), (3, 1, 1, 1), (5,), (1, 6, 1, 1)])
def test_ranges_for_another_number_of_channels(shape: tuple[int, ...]) -> None:
    assert faults(np.ones(shape)) == ["have ranges for another number of channels than their weight has"]


@pytest.mark.parametrize(
    "weight", [AMAX * 0, np.zeros(6), np.zeros(()), AMAX * (np.arange(6) > 0).reshape(-1, 1, 1, 1)]
)
def test_a_range_of_zero_on_a_weight_that_is_not(weight: Any) -> None:
    assert faults(weight) == ["have a range of 0 where the weight is not 0"]


def test_a_dead_channel_may_have_a_range_of_zero() -> None:
    dead = WEIGHT.copy()
    dead[2] = 0
    state = {"conv.weight_quantizer._amax": np.abs(dead).max((1, 2, 3), keepdims=True), "conv.weight": dead}
    table = table_of(state, NPZ, "state.npz")
    assert not table.remarks
    assert len(table.weights) == 1


def test_a_negative_range_of_an_activation_is_kept_as_it_is_for_the_checks() -> None:
    assert [item.amax for item in read(activation=-2.0)] == [-2.0]
