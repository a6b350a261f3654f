"""The integer arithmetic that gives a value its bin."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core import kernels

laws = settings(deadline=None)
MAGNITUDES = st.floats(0, float(np.finfo(np.float32).max), width=32)


def bits(value: float) -> int:
    return int(np.float32(value).view(np.int32))


@laws
@given(MAGNITUDES)
def test_the_exponent_is_the_smallest_that_fits(value: float) -> None:
    exponent = kernels.exponent_for(bits(value))
    assert value / 2.0**exponent < kernels.BINS
    assert exponent == kernels.MIN_EXPONENT or value / 2.0 ** (exponent - 1) >= kernels.BINS


@laws
@given(MAGNITUDES, MAGNITUDES)
def test_the_bin_is_the_magnitude_over_the_bin_width(one: float, other: float) -> None:
    small, large = sorted((one, other))
    exponent = kernels.exponent_for(bits(large))
    for value in (small, large):
        assert kernels.bin_of(bits(value), exponent) == math.floor(value / 2.0**exponent)


@laws
@given(st.lists(MAGNITUDES, min_size=1, max_size=50), st.integers(0, 40))
def test_widening_equals_counting_in_wide_bins(values: list[float], shift: int) -> None:
    narrow = kernels.exponent_for(bits(max(values)))
    counts = np.bincount([int(value / 2.0**narrow) for value in values], minlength=kernels.BINS)
    kernels.widen(counts, shift)
    wide = np.bincount([int(value / 2.0**narrow) >> shift for value in values], minlength=kernels.BINS)
    assert np.array_equal(counts, wide)


@pytest.mark.parametrize("shift", [0, -3])
def test_widening_never_narrows(shift: int) -> None:
    counts = np.arange(8)
    kernels.widen(counts, shift)
    assert list(counts) == list(range(8))


def test_slots_of_all_regions_fit_sixteen_bits() -> None:
    assert kernels.REGIONS * kernels.BINS == 2**16
    assert kernels.BLOCK < 2**16, "equal neighbours of a block are counted in 16 bits"


def test_scratch_is_clean_after_every_kind_of_block() -> None:
    """Spread, repeated, constant and non-finite blocks, with and without bounds, leave nothing for the next tensor."""
    rng = np.random.default_rng(0)
    spread = rng.standard_normal(3 * kernels.FEW).astype(np.float32)
    broken = spread.copy()
    broken[::1000] = np.nan
    lanes = np.zeros((kernels.LANES - 1, kernels.LANE_SIZE), np.uint32)
    for values in (spread, np.maximum(spread, 0), np.full_like(spread, 3), broken, spread * np.float32(1e30)):
        for bounds in ([-np.inf, np.inf], [-0.5, 0.5]):
            state = np.zeros(kernels.STATE_SIZE, np.int64)
            state[kernels.EXPONENT : kernels.TOP] = kernels.MIN_EXPONENT
            state[kernels.TOP :] = -1
            counts = np.zeros((kernels.REGIONS, kernels.BINS), np.uint32)
            values.flags.writeable = False
            kernels.count_tensor(
                values,
                values.view(np.int32),
                1,
                1,
                0,
                np.array(bounds, np.float32),
                state,
                counts,
                np.empty(0, np.int32),
                np.empty(0, np.int32),
                np.full((2, kernels.TAIL), -1, np.int32),
                lanes,
                np.empty(kernels.BLOCK, np.uint16),
                np.empty(kernels.BLOCK, np.float32),
            )
            assert not lanes.any()
            assert counts.sum() == state[kernels.COUNT] == np.isfinite(values).sum()
