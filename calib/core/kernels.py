"""Counting kernels: one pass over an activation gives extrema, channel extrema, non-finite count and histogram.

A float32's bit pattern is turned into an integer *key* that orders like the value itself, so extrema and the
non-finite check vectorise without floating-point comparisons. Multiplying by a power of two and truncating is exact,
so a value's bin depends on the value alone, never on how the data is cut into blocks or batches.

Values are counted in four *regions*: non-negative and negative, each up to a bound and beyond it. The bounds are those
of a Relu or Clip behind the tensor: the clipped tensor's histogram then follows exactly, without counting it.
Each region has a bin width of its own, which depends on the largest magnitude in that region alone.

Every kernel releases the GIL; threads each bring their own accumulator and scratch.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

BIN_BITS = 14
BINS = 1 << BIN_BITS
"""Bins a region. Between ``BINS / 2`` and ``BINS`` of them lie below the region's largest magnitude."""

MIN_EXPONENT = -126
"""Smallest log2 of a bin width; ``2**-MIN_EXPONENT`` is still a finite float32."""

REGIONS = 4
"""0: ``0 <= x <= high``, 1: ``low <= x < 0``, 2: ``x > high``, 3: ``x < low``; without bounds the first two do."""

LANES = 4
"""Sub-histograms side by side: repeated values then do not wait for each other's increments."""

BLOCK = 4096
FEW = 1 << 16
"""Tensors up to this size are counted straight into their histogram."""

SHORT_ROW = 64
"""Rows shorter than this are counted as one run, and their channel extrema in a pass of their own."""

KEY_MASK: Any = np.int32(0x7FFFFFFF)
INFINITE: Any = np.int32(0x7F800000)
KEY_HIGHEST: Any = np.int32(2147483647)
KEY_LOWEST: Any = np.int32(-2147483648)
MINUS_ZERO = -1
"""Key of -0.0, which counts as a non-negative value."""

SIGN_SHIFT: Any = np.int32(31)
ONE: Any = np.uint32(1)

COUNT, NONFINITE, LOW, HIGH, EXPONENT, TOP = 0, 1, 2, 3, 4, 8
"""Slots of a tensor's int64 state; EXPONENT and TOP begin one slot a region."""

STATE_SIZE = TOP + REGIONS


@njit(nogil=True, cache=True)
def exponent_for(magnitude: int) -> int:
    """Smallest bin exponent at which a magnitude, given as float32 bits, falls below bin ``BINS``."""
    return max((magnitude >> 23) - 127 + 1 - BIN_BITS, MIN_EXPONENT)


@njit(nogil=True, cache=True)
def bin_of(magnitude: int, exponent: int) -> int:
    """Bin of a magnitude given as float32 bits; the mantissa shifted, so no rounding can occur."""
    shift = 150 + exponent - max(magnitude >> 23, 1)
    mantissa = (magnitude & 0x7FFFFF) | (0x800000 if magnitude >> 23 else 0)
    return mantissa >> min(shift, 31)


@njit(nogil=True, cache=True)
def widen(counts: NDArray[np.int64], shift: int) -> None:
    """Sum neighbouring bins of ``counts[bins]`` in place, so that bins grow ``2**shift`` times wider."""
    shift = min(shift, 31)
    if shift > 0:
        for source in range(1, counts.size):
            amount = counts[source]
            counts[source] = 0
            counts[source >> shift] += amount


@njit(nogil=True, cache=True)
def _flush(lanes: NDArray[np.uint32], counts: NDArray[np.int64], state: NDArray[np.int64], region: int) -> None:
    """Move a region's bins from the lanes to the counts."""
    start = region * BINS
    for bin_ in range(state[TOP + region] + 1):
        total = np.int64(0)
        for lane in range(LANES):
            total += lanes[lane, start + bin_]
            lanes[lane, start + bin_] = 0
        counts[region, bin_] += total
    state[TOP + region] = -1


@njit(nogil=True, cache=True)
def _make_room(
    magnitude: int,
    region: int,
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    lanes: NDArray[np.uint32],
    few: bool,
) -> None:
    """Widen a region so that a magnitude fits, and note its bin as the highest in use."""
    needed = exponent_for(magnitude)
    if needed > state[EXPONENT + region]:
        if not few:
            _flush(lanes, counts, state, region)
        widen(counts[region], needed - state[EXPONENT + region])
        state[EXPONENT + region] = needed
    state[TOP + region] = max(state[TOP + region], bin_of(magnitude, state[EXPONENT + region]))


@njit(nogil=True, cache=True)
def _extrema(bits: NDArray[np.int32]) -> tuple[int, int]:
    """Keys of the smallest and the largest value."""
    low, high = KEY_HIGHEST, KEY_LOWEST
    for index in range(bits.size):
        pattern = bits[index]
        key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
        low = min(low, key)
        high = max(high, key)
    return low, high


@njit(nogil=True, cache=True)
def _inner_extrema(bits: NDArray[np.int32], low_bound: Any, high_bound: Any) -> tuple[int, int]:
    """Keys of the smallest value at or above one bound and of the largest at or below the other."""
    low, high = KEY_HIGHEST, KEY_LOWEST
    for index in range(bits.size):
        pattern = bits[index]
        key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
        low = min(low, key if key >= low_bound else KEY_HIGHEST)
        high = max(high, key if key <= high_bound else KEY_LOWEST)
    return low, high


@njit(nogil=True, cache=True)
def _keep_finite(
    values: NDArray[np.float32], bits: NDArray[np.int32], kept: NDArray[np.float32], kept_bits: NDArray[np.int32]
) -> int:
    """Copy the finite values of a block; returns how many."""
    size = 0
    for index in range(values.size):
        if (bits[index] & KEY_MASK) < INFINITE:
            kept[size] = values[index]
            kept_bits[size] = bits[index]
            size += 1
    return size


@njit(nogil=True, cache=True)
def _inner_slots(
    values: NDArray[np.float32],
    inverse: NDArray[np.float32],
    slots: NDArray[np.uint16],
) -> None:
    """Slots of values none of which lies beyond a bound."""
    positive, negative = inverse[0], inverse[1]
    for index in range(values.size):
        value = values[index]
        below = value < 0
        slot = np.int32(abs(value) * (negative if below else positive))
        slots[index] = np.uint16(slot + (np.int32(BINS) if below else np.int32(0)))


@njit(nogil=True, cache=True)
def _all_slots(
    values: NDArray[np.float32],
    inverse: NDArray[np.float32],
    bounds: NDArray[np.float32],
    slots: NDArray[np.uint16],
) -> None:
    """Slots of any values."""
    inner_positive, inner_negative, outer_positive, outer_negative = inverse[0], inverse[1], inverse[2], inverse[3]
    low, high = bounds[0], bounds[1]
    for index in range(values.size):
        value = values[index]
        below = value < 0
        beyond = value > high or value < low
        positive = outer_positive if beyond else inner_positive
        negative = outer_negative if beyond else inner_negative
        slot = np.int32(abs(value) * (negative if below else positive))
        region = (np.int32(BINS) if below else np.int32(0)) + (np.int32(2 * BINS) if beyond else np.int32(0))
        slots[index] = np.uint16(slot + region)


@njit(nogil=True, cache=True)
def _increment(slots: NDArray[np.uint16], lanes: NDArray[np.uint32]) -> None:
    """Count each slot, neighbours in different lanes."""
    lane0, lane1, lane2, lane3 = lanes[0], lanes[1], lanes[2], lanes[3]
    quads = slots.size // LANES
    for quad in range(quads):
        start = LANES * quad
        lane0[slots[start]] += ONE
        lane1[slots[start + 1]] += ONE
        lane2[slots[start + 2]] += ONE
        lane3[slots[start + 3]] += ONE
    for index in range(LANES * quads, slots.size):
        lane0[slots[index]] += ONE


@njit(nogil=True, cache=True)
def _increment_directly(slots: NDArray[np.uint16], counts: NDArray[np.int64]) -> None:
    """Count each slot without lanes, where flushing them would cost more than it saves."""
    for index in range(slots.size):
        counts[slots[index]] += 1


@njit(nogil=True, cache=True)
def _key_of(bound: Any) -> Any:
    return np.int32(bound ^ ((bound >> SIGN_SHIFT) & KEY_MASK))


@njit(nogil=True, cache=True)
def _count_block(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    bounds: NDArray[np.float32],
    bound_bits: NDArray[np.int32],
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    lanes: NDArray[np.uint32],
    slots: NDArray[np.uint16],
    low: int,
    high: int,
    few: bool,
) -> None:
    """Count one block of finite values, at most ``BLOCK`` long, whose extrema have the given keys."""
    low_bound, high_bound = _key_of(bound_bits[0]), _key_of(bound_bits[1])
    beyond = low < low_bound or high > high_bound
    inner_low, inner_high = _inner_extrema(bits, low_bound, high_bound) if beyond else (low, high)
    if MINUS_ZERO <= inner_high <= high_bound:
        _make_room(max(inner_high, 0), 0, state, counts, lanes, few)
    if high > high_bound:
        _make_room(high, 2, state, counts, lanes, few)
    if low_bound <= inner_low < MINUS_ZERO:
        _make_room((inner_low ^ KEY_MASK) & KEY_MASK, 1, state, counts, lanes, few)
    if low < low_bound:
        _make_room((low ^ KEY_MASK) & KEY_MASK, 3, state, counts, lanes, few)
    inverse = np.empty(REGIONS, np.float32)
    for region in range(REGIONS):
        inverse[region] = math.ldexp(1.0, -state[EXPONENT + region])
    if beyond:
        _all_slots(values, inverse, bounds, slots)
    else:
        _inner_slots(values, inverse, slots)
    if few:
        _increment_directly(slots[: values.size], counts.reshape(-1))
    else:
        _increment(slots[: values.size], lanes)


@njit(nogil=True, cache=True)
def _count_run(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    bounds: NDArray[np.float32],
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    lanes: NDArray[np.uint32],
    slots: NDArray[np.uint16],
    kept: NDArray[np.float32],
    few: bool,
) -> tuple[int, int]:
    """Count a contiguous run; returns the keys of its smallest and largest finite value."""
    run_low, run_high = KEY_HIGHEST, KEY_LOWEST
    bound_bits, kept_bits = bounds.view(np.int32), kept.view(np.int32)
    for start in range(0, values.size, BLOCK):
        stop = min(start + BLOCK, values.size)
        block, block_bits = values[start:stop], bits[start:stop]
        low, high = _extrema(block_bits)
        if high >= INFINITE or (low < 0 and (low ^ KEY_MASK) & KEY_MASK >= INFINITE):
            size = _keep_finite(block, block_bits, kept, kept_bits)
            state[NONFINITE] += block.size - size
            if size == 0:
                continue
            block, block_bits = kept[:size], kept_bits[:size]
            low, high = _extrema(block_bits)
        _count_block(block, block_bits, bounds, bound_bits, state, counts, lanes, slots, low, high, few)
        state[COUNT] += block.size
        run_low, run_high = min(run_low, low), max(run_high, high)
    state[LOW], state[HIGH] = min(state[LOW], run_low), max(state[HIGH], run_high)
    return run_low, run_high


@njit(nogil=True, cache=True)
def _channel_extrema(bits: NDArray[np.int32], channel_low: NDArray[np.int32], channel_high: NDArray[np.int32]) -> None:
    """Update channel keys from ``bits[outer, channels, inner]``, skipping non-finite values."""
    for outer in range(bits.shape[0]):
        for channel in range(bits.shape[1]):
            for inner in range(bits.shape[2]):
                pattern = bits[outer, channel, inner]
                if (pattern & KEY_MASK) < INFINITE:
                    key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
                    channel_low[channel] = min(channel_low[channel], key)
                    channel_high[channel] = max(channel_high[channel], key)


@njit(nogil=True, cache=True)
def count_tensor(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    bounds: NDArray[np.float32],
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    channel_low: NDArray[np.int32],
    channel_high: NDArray[np.int32],
    lanes: NDArray[np.uint32],
    slots: NDArray[np.uint16],
    kept: NDArray[np.float32],
) -> None:
    """Count one activation tensor into its accumulator.

    Args:
        values: float32 ``[outer, channels, inner]``, C-contiguous.
        bits: the same memory as int32.
        bounds: float32 ``[2]``: ``low <= 0`` and ``high >= 0``, infinite for none.
        state: int64 ``[STATE_SIZE]``: finite count, non-finite count, smallest and largest key,
            bin exponents and highest bins in use of the four regions; updated.
        counts: int64 ``[2 or REGIONS, BINS]``, 2 without bounds; updated, a region widened when a larger
            magnitude arrives.
        channel_low: int32 ``[channels]`` keys, updated; length 0 when channels are not tracked.
        channel_high: int32 ``[channels]`` keys, likewise.
        lanes: uint32 ``[LANES, REGIONS * BINS]`` scratch, zero on entry and on return.
        slots: uint16 ``[BLOCK]`` scratch.
        kept: float32 ``[BLOCK]`` scratch.
    """
    few = values.size <= FEW
    if channel_low.size and values.shape[2] >= SHORT_ROW:
        for outer in range(values.shape[0]):
            for channel in range(values.shape[1]):
                row, row_bits = values[outer, channel], bits[outer, channel]
                low, high = _count_run(row, row_bits, bounds, state, counts, lanes, slots, kept, few)
                channel_low[channel] = min(channel_low[channel], low)
                channel_high[channel] = max(channel_high[channel], high)
    else:
        _count_run(values.ravel(), bits.ravel(), bounds, state, counts, lanes, slots, kept, few)
        if channel_low.size:
            _channel_extrema(bits, channel_low, channel_high)
    if not few:
        for region in range(counts.shape[0]):
            _flush(lanes, counts, state, region)
    state[TOP:] = -1
