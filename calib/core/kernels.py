"""Counting kernels: one pass over an activation gives extrema, channel extrema, non-finite count and histogram.

A float32's bit pattern is turned into an integer *key* that orders like the value itself, so extrema and the
non-finite check vectorise without floating-point comparisons. Multiplying by a power of two and truncating is exact,
so a value's bin depends on the value alone, never on how the data is cut into blocks or batches.

Values are counted in four *regions*: non-negative and negative, each up to a bound and beyond it. The bounds are those
of a Clip behind the tensor: the clipped tensor's histogram then follows exactly, without counting it.
Each region has a bin width of its own, which depends on the magnitudes in that region alone.

A block is read twice from the first-level cache: once for extrema and *slots* (region and bin as one number), once to
count the slots. Spread values are counted in one sub-histogram, which fits the caches best; blocks with many equal
neighbours in four side by side, where repeated values do not wait for each other's increments.

Every kernel releases the GIL; threads each bring their own accumulator and scratch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled, compiled_helper

BIN_BITS = 14
BINS = 1 << BIN_BITS
"""Bins a region. Between ``BINS / 2`` and ``BINS`` of them lie below the region's largest magnitude."""

MIN_EXPONENT = -126
"""Smallest log2 of a bin width; ``2**-MIN_EXPONENT`` is still a finite float32."""

REGIONS = 4
"""0: ``0 <= x <= high``, 1: ``low <= x < 0``, 2: ``x > high``, 3: ``x < low``; without bounds the first two do."""

LANES = 4
"""Sub-histograms."""

LANE_SIZE = REGIONS * BINS + 80
"""Slots of a lane, and room that keeps equal slots of two lanes apart in the cache and in the store buffer."""

BLOCK = 4096
REPEATED = 16
"""From one equal neighbour in so many on, four lanes are faster than one."""

FEW = 1 << 15
"""Tensors up to this size are counted straight into their histogram."""

SHORT_ROW = 32
"""Channel extrema of rows shorter than this are found in a pass of their own."""

TAIL = 256
"""Largest magnitudes of either sign that are kept as they are."""

PIECE = 256
"""Values that are passed over together when none of them enters a tail."""

KEY_MASK: Any = np.int32(0x7FFFFFFF)
INFINITE: Any = np.int32(0x7F800000)
KEY_HIGHEST: Any = np.int32(2147483647)
KEY_LOWEST: Any = np.int32(-2147483648)
MINUS_ZERO = -1
"""Key of -0.0, which counts as a non-negative value."""

SIGN_SHIFT: Any = np.int32(31)
ZERO: Any = np.int32(0)
NEGATIVE: Any = np.int32(BINS)
BEYOND: Any = np.int32(2 * BINS)
ONE: Any = np.uint32(1)

COUNT, NONFINITE, LOW, HIGH, EXPONENT, TOP = 0, 1, 2, 3, 4, 8
"""Slots of a tensor's int64 state; EXPONENT and TOP begin one slot a region."""

STATE_SIZE = TOP + REGIONS


@compiled
def exponent_for(magnitude: int) -> int:
    """Smallest bin exponent at which a magnitude, given as float32 bits, falls below bin ``BINS``."""
    return max((magnitude >> 23) - 127 + 1 - BIN_BITS, MIN_EXPONENT)


@compiled
def bin_of(magnitude: int, exponent: int) -> int:
    """Bin of a magnitude given as float32 bits; the mantissa shifted, so no rounding can occur."""
    shift = 150 + exponent - max(magnitude >> 23, 1)
    mantissa = (magnitude & 0x7FFFFF) | (0x800000 if magnitude >> 23 else 0)
    return mantissa >> min(shift, 31)


@compiled
def widen(counts: NDArray[np.int64], shift: int) -> None:
    """Sum neighbouring bins of ``counts[bins]`` in place, so that bins grow ``2**shift`` times wider."""
    shift = min(shift, 31)
    if shift > 0:
        for source in range(1, counts.size):
            amount = counts[source]
            counts[source] = 0
            counts[source >> shift] += amount


@compiled_helper
def _flush(lanes: NDArray[np.uint32], counts: NDArray[np.int64], state: NDArray[np.int64], region: int) -> None:
    """Move a region's bins from the lanes to the counts."""
    start = region * BINS
    for lane in range(lanes.shape[0]):
        source = lanes[lane, start : start + state[TOP + region] + 1]
        for bin_ in range(source.size):
            counts[region, bin_] += source[bin_]
            source[bin_] = 0
    state[TOP + region] = -1


@compiled_helper
def _make_room(
    magnitudes: NDArray[np.int64],
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    lanes: NDArray[np.uint32],
    scales: NDArray[np.int32],
    few: bool,
) -> bool:
    """Widen regions so that their magnitudes (-1 for none) fit, and note the highest bins; tells whether any grew."""
    grew = False
    for region in range(counts.shape[0]):
        if magnitudes[region] < 0:
            continue
        needed = exponent_for(magnitudes[region])
        if needed > state[EXPONENT + region]:
            if not few:
                _flush(lanes, counts, state, region)
            widen(counts[region], needed - state[EXPONENT + region])
            state[EXPONENT + region] = needed
            scales[region] = (127 - needed) << 23
            grew = True
        top = bin_of(magnitudes[region], state[EXPONENT + region])
        state[TOP + region] = max(state[TOP + region], top)
    return grew


@compiled_helper
def _scan(
    values: NDArray[np.float32], bits: NDArray[np.int32], scales: NDArray[np.float32], slots: NDArray[np.uint16]
) -> tuple[int, int]:
    """Keys of the smallest and the largest value, and all slots, which hold if no value is out of its region."""
    positive, negative = scales[0], scales[1]
    low, high = KEY_HIGHEST, KEY_LOWEST
    for index in range(values.size):
        pattern, value = bits[index], values[index]
        key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
        low, high = min(low, key), max(high, key)
        below = value < 0
        slot = np.int32(abs(value) * (negative if below else positive))
        slots[index] = np.uint16(slot + (NEGATIVE if below else ZERO))
    return low, high


@compiled_helper
def _slots(
    values: NDArray[np.float32], scales: NDArray[np.float32], bounds: NDArray[np.float32], slots: NDArray[np.uint16]
) -> None:
    """Slots of finite values, bounds considered."""
    inner_positive, inner_negative, outer_positive, outer_negative = scales[0], scales[1], scales[2], scales[3]
    low, high = bounds[0], bounds[1]
    for index in range(values.size):
        value = values[index]
        below = value < 0
        beyond = (value > high) | (value < low)
        positive = outer_positive if beyond else inner_positive
        negative = outer_negative if beyond else inner_negative
        slot = np.int32(abs(value) * (negative if below else positive))
        slots[index] = np.uint16(slot + (NEGATIVE if below else ZERO) + (BEYOND if beyond else ZERO))


@compiled_helper
def _finite_extrema(bits: NDArray[np.int32]) -> tuple[int, int]:
    """Keys of the smallest and the largest finite value."""
    low, high = KEY_HIGHEST, KEY_LOWEST
    for index in range(bits.size):
        pattern = bits[index]
        key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
        finite = (pattern & KEY_MASK) < INFINITE
        low = min(low, key if finite else KEY_HIGHEST)
        high = max(high, key if finite else KEY_LOWEST)
    return low, high


@compiled_helper
def _keep_finite(values: NDArray[np.float32], bits: NDArray[np.int32], kept: NDArray[np.float32]) -> int:
    """Copy the finite values of a block; returns how many."""
    size = 0
    for index in range(values.size):
        if (bits[index] & KEY_MASK) < INFINITE:
            kept[size] = values[index]
            size += 1
    return size


@compiled_helper
def _equal_neighbours(slots: NDArray[np.uint16]) -> int:
    following = slots[1:]
    equal = np.uint16(0)
    for index in range(following.size):
        equal = np.uint16(equal + np.uint16(slots[index] == following[index]))
    return int(equal)


@compiled_helper
def _count_in_one(slots: NDArray[np.uint16], lane: NDArray[np.uint32]) -> None:
    for index in range(slots.size):
        lane[slots[index]] += ONE


@compiled_helper
def _count_in_four(slots: NDArray[np.uint16], lanes: NDArray[np.uint32]) -> None:
    """Count each slot, neighbours in different lanes; ``slots`` has a multiple of four."""
    lane0, lane1, lane2, lane3 = lanes[0], lanes[1], lanes[2], lanes[3]
    for quad in range(slots.size // LANES):
        start = LANES * quad
        lane0[slots[start]] += ONE
        lane1[slots[start + 1]] += ONE
        lane2[slots[start + 2]] += ONE
        lane3[slots[start + 3]] += ONE


@compiled_helper
def _count_directly(slots: NDArray[np.uint16], counts: NDArray[np.int64]) -> None:
    for index in range(slots.size):
        counts[slots[index]] += 1


@compiled_helper
def _count_slots(
    slots: NDArray[np.uint16], constant: bool, few: bool, counts: NDArray[np.int64], lanes: NDArray[np.uint32]
) -> bool:
    """Count each slot: at once if all are equal, straight where flushing the lanes would cost more than it saves.

    Otherwise in one lane or, where neighbours are often equal, in all; tells whether in all.
    """
    if constant:
        counts[slots[0]] += slots.size
        return False
    if few:
        _count_directly(slots, counts)
        return False
    in_four = _equal_neighbours(slots) * REPEATED > slots.size
    quads = slots.size // LANES * LANES if in_four else 0
    _count_in_four(slots[:quads], lanes)
    _count_in_one(slots[quads:], lanes[0])
    return in_four


@compiled_helper
def _enters(low: Any, high: Any, tails: NDArray[np.int32]) -> bool:
    """Whether the smallest or the largest of some values, given as keys, belongs into a tail."""
    if high >= MINUS_ZERO and max(high, 0) > tails[0, 0]:
        return True
    return bool(low < MINUS_ZERO and (low ^ KEY_MASK) & KEY_MASK > tails[1, 0])


@compiled_helper
def _enter(magnitude: int, tail: NDArray[np.int32]) -> None:
    """Put a magnitude in the place of the tail's smallest if it is larger."""
    if tail[0] < magnitude < INFINITE:
        place = 0
        while place + 1 < TAIL and tail[place + 1] < magnitude:
            tail[place] = tail[place + 1]
            place += 1
        tail[place] = magnitude


@compiled_helper
def _note_largest(bits: NDArray[np.int32], tails: NDArray[np.int32]) -> None:
    """Enter a block's largest magnitudes into the tails."""
    for begin in range(0, bits.size, PIECE):
        piece = bits[begin : begin + PIECE]
        low, high = _finite_extrema(piece)
        if _enters(low, high, tails):
            for index in range(piece.size):
                magnitude = piece[index] & KEY_MASK
                _enter(magnitude, tails[1 if piece[index] < 0 < magnitude else 0])


@compiled_helper
def _needed_room(low: Any, high: Any, bounds: NDArray[np.int32], magnitudes: NDArray[np.int64]) -> bool:
    """Largest magnitude of each region, -1 for none, from a block's extreme keys; tells whether any is out of bounds.

    Where values lie beyond a bound the bound itself stands for those inside: the clipped tensor's largest value.
    """
    low_bound = np.int32(bounds[0] ^ ((bounds[0] >> SIGN_SHIFT) & KEY_MASK))
    high_bound = bounds[1]
    magnitudes[0] = max(min(high, high_bound), 0) if high >= MINUS_ZERO else -1
    magnitudes[1] = (max(low, low_bound) ^ KEY_MASK) & KEY_MASK if low < MINUS_ZERO else -1
    magnitudes[2] = high if high > high_bound else -1
    magnitudes[3] = (low ^ KEY_MASK) & KEY_MASK if low < low_bound else -1
    return bool(high > high_bound or low < low_bound)


@compiled_helper
def _scan_rows(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    start: int,
    row: int,
    scales: NDArray[np.float32],
    channel_low: NDArray[np.int32],
    channel_high: NDArray[np.int32],
    slots: NDArray[np.uint16],
) -> tuple[int, int, bool]:
    """Scan a block that begins at index ``start`` of a tensor whose channels lie in rows, piece by piece.

    Returns the keys of the smallest and the largest finite value, and whether all were finite.
    """
    low, high, finite = KEY_HIGHEST, KEY_LOWEST, True
    begin = 0
    while begin < values.size:
        number = (start + begin) // row
        end = min((number + 1) * row - start, values.size)
        first, last = _scan(values[begin:end], bits[begin:end], scales, slots[begin:end])
        if last >= INFINITE or first <= ~INFINITE:
            first, last = _finite_extrema(bits[begin:end])
            finite = False
        if channel_low.size:
            channel = number % channel_low.size
            channel_low[channel] = min(channel_low[channel], first)
            channel_high[channel] = max(channel_high[channel], last)
        low, high = min(low, first), max(high, last)
        begin = end
    return low, high, finite


@compiled_helper
def _channel_extrema(
    bits: NDArray[np.int32], inner: int, channel_low: NDArray[np.int32], channel_high: NDArray[np.int32]
) -> None:
    """Update channel keys from ``bits[outer, channels, inner]`` with short rows, skipping non-finite values."""
    channels = channel_low.size
    if inner > 1:
        for row in range(bits.size // inner):
            channel = row % channels
            low, high = _finite_extrema(bits[row * inner : (row + 1) * inner])
            channel_low[channel] = min(channel_low[channel], low)
            channel_high[channel] = max(channel_high[channel], high)
        return
    for begin in range(0, bits.size, channels):
        for channel in range(channels):
            pattern = bits[begin + channel]
            key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
            finite = (pattern & KEY_MASK) < INFINITE
            channel_low[channel] = min(channel_low[channel], key if finite else KEY_HIGHEST)
            channel_high[channel] = max(channel_high[channel], key if finite else KEY_LOWEST)


@compiled
def count_tensor(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    inner: int,
    bounds: NDArray[np.float32],
    state: NDArray[np.int64],
    counts: NDArray[np.int64],
    channel_low: NDArray[np.int32],
    channel_high: NDArray[np.int32],
    tails: NDArray[np.int32],
    lanes: NDArray[np.uint32],
    slots: NDArray[np.uint16],
    kept: NDArray[np.float32],
) -> None:
    """Count one activation tensor into its accumulator; fewer than ``2**32`` values.

    Args:
        values: float32 ``[outer * channels * inner]``, contiguous.
        bits: the same memory as int32.
        inner: values of a channel that lie side by side.
        bounds: float32 ``[2]``: ``low < 0`` and ``high > 0``, infinite for none.
        state: int64 ``[STATE_SIZE]``: finite count, non-finite count, smallest and largest key,
            bin exponents and highest bins in use of the four regions; updated.
        counts: int64 ``[2 or REGIONS, BINS]``, 2 without bounds; updated, a region widened when a larger
            magnitude arrives.
        channel_low: int32 ``[channels]`` keys, updated; length 0 when channels are not tracked.
        channel_high: int32 ``[channels]`` keys, likewise.
        tails: int32 ``[2, TAIL]``: largest magnitudes of the non-negative and of the negative values as float32 bits,
            ascending, -1 where there are fewer; updated.
        lanes: uint32 ``[LANES, LANE_SIZE]`` scratch, zero on entry and on return.
        slots: uint16 ``[BLOCK]`` scratch.
        kept: float32 ``[BLOCK]`` scratch.
    """
    few, in_four, flat = values.size <= FEW, False, counts.reshape(-1)
    by_rows = channel_low.size > 0 and inner >= SHORT_ROW
    row = inner if by_rows else max(values.size, 1)
    row_low, row_high = (channel_low, channel_high) if by_rows else (channel_low[:0], channel_high[:0])
    magnitudes = np.empty(REGIONS, np.int64)
    scale_bits = np.empty(REGIONS, np.int32)
    for region in range(REGIONS):
        scale_bits[region] = (127 - state[EXPONENT + region]) << 23
    scales = scale_bits.view(np.float32)
    for start in range(0, values.size, BLOCK):
        block, block_bits = values[start : start + BLOCK], bits[start : start + BLOCK]
        low, high, finite = _scan_rows(block, block_bits, start, row, scales, row_low, row_high, slots)
        size = block.size
        if not finite:
            size = _keep_finite(block, block_bits, kept)
            state[NONFINITE] += block.size - size
            block = kept[:size]
        if size:
            state[COUNT] += size
            state[LOW], state[HIGH] = min(state[LOW], low), max(state[HIGH], high)
            if _enters(low, high, tails):
                _note_largest(block_bits, tails)
            beyond = _needed_room(low, high, bounds.view(np.int32), magnitudes)
            grew = _make_room(magnitudes, state, counts, lanes, scale_bits, few)
            if beyond or grew or not finite:
                _slots(block, scales, bounds, slots)
            in_four |= _count_slots(slots[:size], low == high, few, flat, lanes)
    if channel_low.size and not by_rows:
        _channel_extrema(bits, inner, channel_low, channel_high)
    if not few:
        for region in range(counts.shape[0]):
            _flush(lanes[: LANES if in_four else 1], counts, state, region)
    state[TOP:] = -1
