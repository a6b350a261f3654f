"""Counting kernels: one pass over an activation gives extrema, channel extrema, non-finite count and histogram.

A float32's bit pattern is turned into an integer *key* that orders like the value itself, so extrema and the
non-finite check vectorise without floating-point comparisons. Multiplying by a power of two and truncating is exact,
so a value's bin depends on the value alone, never on how the data is cut into blocks or batches.

Values are counted in four *regions*: non-negative and negative, each up to a bound and beyond it. The bounds are those
of a Clip behind the tensor: the clipped tensor's histogram then follows exactly, without counting it.
Each region has a bin width of its own, which depends on the magnitudes in that region alone.

A block is read twice from the first-level cache: once for extrema and *slots* (region and bin as one number), once to
count the slots. Spread values are counted straight into the tensor's histogram, which fits the caches best; blocks
with many equal neighbours in four side by side, where repeated values do not wait for each other's increments. While
slots are counted, the values of the next block are on their way from memory.

A tensor may also come *in blocks of channels*, as runtimes compute convolutions: ``[outer, blocks, inner, width]``,
where channel ``i`` is lane ``i % width`` of block ``i // width`` and the lanes behind the last channel are padding.

Every kernel releases the GIL; threads each bring their own accumulator and scratch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled, compiled_helper, prefetch

BIN_BITS = 14
BINS = 1 << BIN_BITS
"""Bins a region. Between ``BINS / 2`` and ``BINS`` of them lie below the region's largest magnitude."""

MIN_EXPONENT = -126
"""Smallest log2 of a bin width; ``2**-MIN_EXPONENT`` is still a finite float32."""

REGIONS = 4
"""0: ``0 <= x <= high``, 1: ``low <= x < 0``, 2: ``x > high``, 3: ``x < low``; without bounds the first two do."""

MOST = 1 << 32
"""Fewer values than so many can be counted before a histogram has to be emptied: its counts have 32 bits."""

LANES = 4
"""Histograms side by side: the tensor's own, and others of the thread."""

LANE_MARGIN = 80
LANE_SIZE = REGIONS * BINS + LANE_MARGIN
"""Slots of a lane, and room that keeps equal slots of two lanes apart in the cache and in the store buffer."""

BLOCK = 4096
REPEATED = 16
"""From one equal neighbour in so many on, four lanes are faster than one."""

FEW = 1 << 15
"""Tensors up to this size are counted in one histogram: adding four would cost more than they save."""

CACHE_LINE = 16
"""Values that come from memory together."""

CHECKED = 512
"""Values that are looked at together for one beyond a bound."""

WIDTHS = (8, 16)
"""Channels a block, where a tensor comes in blocks of channels."""

QUAD = 4
"""Values that are copied together."""

TILE = 64
"""Values of such a tensor whose extrema are found side by side."""

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
def widen(counts: NDArray[Any], shift: int) -> None:
    """Sum neighbouring bins of ``counts[bins]`` in place, so that bins grow ``2**shift`` times wider."""
    shift = min(shift, 31)
    if shift > 0:
        for source in range(1, counts.size):
            amount = counts[source]
            counts[source] = 0
            counts[source >> shift] += amount


@compiled_helper
def _flush(lanes: NDArray[np.uint32], counts: NDArray[np.uint32], state: NDArray[np.int64], region: int) -> None:
    """Move a region's bins from the lanes to the counts."""
    start, size = LANE_MARGIN + region * BINS, state[TOP + region] + 1
    for lane in range(lanes.shape[0]):
        source, target = lanes[lane, start : start + size], counts[region, :size]
        for bin_ in range(size):
            target[bin_] += source[bin_]
            source[bin_] = 0
    state[TOP + region] = -1


@compiled_helper
def _make_room(
    low: Any,
    high: Any,
    size: int,
    bounds: NDArray[np.float32],
    state: NDArray[np.int64],
    counts: NDArray[np.uint32],
    lanes: NDArray[np.uint32],
    scales: NDArray[np.int32],
    magnitudes: NDArray[np.int64],
) -> tuple[bool, bool]:
    """Note a block's extreme keys, its size and the highest bins, and widen regions so that it fits.

    Tells whether any grew, and whether any value is out of bounds. ``magnitudes`` is scratch.
    """
    state[COUNT] += size
    state[LOW], state[HIGH] = min(state[LOW], low), max(state[HIGH], high)
    beyond = _needed_room(low, high, bounds, magnitudes)
    grew = False
    for region in range(counts.shape[0]):
        if magnitudes[region] < 0:
            continue
        needed = exponent_for(magnitudes[region])
        if needed > state[EXPONENT + region]:
            _flush(lanes, counts, state, region)
            widen(counts[region], needed - state[EXPONENT + region])
            state[EXPONENT + region] = needed
            scales[region] = (127 - needed) << 23
            grew = True
        top = bin_of(magnitudes[region], state[EXPONENT + region])
        state[TOP + region] = max(state[TOP + region], top)
    return grew, beyond


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
def _mend_slots(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    all_wrong: bool,
    beyond: bool,
    scales: NDArray[np.float32],
    bounds: NDArray[np.float32],
    slots: NDArray[np.uint16],
) -> None:
    """Put slots of finite values right: all of them, or those of the values that lie beyond a bound."""
    if all_wrong:
        _slots(values, scales, bounds, slots)
    elif beyond:
        low_bound, high_bound = _bound_keys(bounds)
        for begin in range(0, values.size, CHECKED):
            end = begin + CHECKED
            low, high = _finite_extrema(bits[begin:end])
            if low < low_bound or high > high_bound:
                _slots(values[begin:end], scales, bounds, slots[begin:end])


@compiled_helper
def _keep_finite(values: NDArray[np.float32], bits: NDArray[np.int32], kept: NDArray[np.float32]) -> int:
    """Copy the finite values of a block, which may be ``kept`` itself; returns how many."""
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
def _count_in_one(
    slots: NDArray[np.uint16], counts: NDArray[np.uint32], values: NDArray[np.float32], ahead: int
) -> None:
    """Count each slot, and fetch as many values from index ``ahead`` on."""
    lines = slots.size // CACHE_LINE
    for line in range(lines):
        if ahead + CACHE_LINE * line < values.size:
            prefetch(values, ahead + CACHE_LINE * line)
        for index in range(CACHE_LINE * line, CACHE_LINE * (line + 1)):
            counts[slots[index]] += ONE
    for index in range(CACHE_LINE * lines, slots.size):
        counts[slots[index]] += ONE


@compiled_helper
def _count_in_four(
    slots: NDArray[np.uint16],
    counts: NDArray[np.uint32],
    lanes: NDArray[np.uint32],
    values: NDArray[np.float32],
    ahead: int,
) -> int:
    """The same with neighbours in different lanes, as far as there are whole cache lines; returns how far."""
    lane1, lane2, lane3 = lanes[0, LANE_MARGIN:], lanes[1, LANE_MARGIN:], lanes[2, LANE_MARGIN:]
    lines = slots.size // CACHE_LINE
    for line in range(lines):
        if ahead + CACHE_LINE * line < values.size:
            prefetch(values, ahead + CACHE_LINE * line)
        for start in range(CACHE_LINE * line, CACHE_LINE * (line + 1), LANES):
            counts[slots[start]] += ONE
            lane1[slots[start + 1]] += ONE
            lane2[slots[start + 2]] += ONE
            lane3[slots[start + 3]] += ONE
    return CACHE_LINE * lines


@compiled_helper
def _count_slots(
    slots: NDArray[np.uint16],
    constant: bool,
    few: bool,
    counts: NDArray[np.uint32],
    lanes: NDArray[np.uint32],
    values: NDArray[np.float32],
    ahead: int,
) -> bool:
    """Count each slot: at once if all are equal, else in one histogram or, where neighbours are often equal, in four.

    Tells whether in four.
    """
    if constant:
        counts[slots[0]] += np.uint32(slots.size)
        return False
    in_four = not few and _equal_neighbours(slots) * REPEATED > slots.size
    done = _count_in_four(slots, counts, lanes, values, ahead) if in_four else 0
    _count_in_one(slots[done:], counts, values, ahead + done)
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
def _bound_keys(bounds: NDArray[np.float32]) -> tuple[Any, Any]:
    """Keys of the bounds."""
    patterns = bounds.view(np.int32)
    return np.int32(patterns[0] ^ ((patterns[0] >> SIGN_SHIFT) & KEY_MASK)), patterns[1]


@compiled_helper
def _flush_all(lanes: NDArray[np.uint32], counts: NDArray[np.uint32], state: NDArray[np.int64]) -> None:
    for region in range(counts.shape[0]):
        _flush(lanes, counts, state, region)


@compiled_helper
def _needed_room(low: Any, high: Any, bounds: NDArray[np.float32], magnitudes: NDArray[np.int64]) -> bool:
    """Largest magnitude of each region, -1 for none, from a block's extreme keys; tells whether any is out of bounds.

    Where values lie beyond a bound the bound itself stands for those inside: the clipped tensor's largest value.
    """
    low_bound, high_bound = _bound_keys(bounds)
    magnitudes[0] = max(min(high, high_bound), 0) if high >= MINUS_ZERO else -1
    magnitudes[1] = (max(low, low_bound) ^ KEY_MASK) & KEY_MASK if low < MINUS_ZERO else -1
    magnitudes[2] = high if high > high_bound else -1
    magnitudes[3] = (low ^ KEY_MASK) & KEY_MASK if low < low_bound else -1
    return bool(high > high_bound or low < low_bound)


@compiled_helper
def _merge_extrema(
    low: NDArray[np.int32], high: NDArray[np.int32], new_low: NDArray[np.int32], new_high: NDArray[np.int32]
) -> None:
    for channel in range(low.size):
        low[channel] = min(low[channel], new_low[channel])
        high[channel] = max(high[channel], new_high[channel])


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
def _scan_tiles(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    scales: NDArray[np.float32],
    low: NDArray[np.int32],
    high: NDArray[np.int32],
    slots: NDArray[np.uint16],
) -> None:
    """Like :func:`_scan`, with extrema of each place in a tile; ``values`` has a multiple of ``TILE``.

    A length known beforehand makes vector instructions of the inner loop.
    """
    positive, negative = scales[0], scales[1]
    for tile in range(values.size // TILE):
        for place in range(TILE):
            pattern, value = bits[TILE * tile + place], values[TILE * tile + place]
            key = np.int32(pattern ^ ((pattern >> SIGN_SHIFT) & KEY_MASK))
            low[place] = min(low[place], key)
            high[place] = max(high[place], key)
            below = value < 0
            slot = np.int32(abs(value) * (negative if below else positive))
            slots[TILE * tile + place] = np.uint16(slot + (NEGATIVE if below else ZERO))


@compiled_helper
def _fold(low: NDArray[np.int32], high: NDArray[np.int32], size: int) -> None:
    """Extrema of the places in a tile to those of ``size`` lanes, which come again and again in it."""
    half = low.size
    while half > size:
        half //= 2
        for place in range(half):
            low[place] = min(low[place], low[half + place])
            high[place] = max(high[place], high[half + place])


@compiled_helper
def _scan_lanes(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    lanes: int,
    tile: NDArray[np.int32],
    scales: NDArray[np.float32],
    channel_low: NDArray[np.int32],
    channel_high: NDArray[np.int32],
    slots: NDArray[np.uint16],
) -> tuple[int, int, bool]:
    """Scan a part of a block of channels, in which each ``lanes`` values are of neighbouring channels; else as rows.

    ``tile`` is scratch, int32 ``[2, TILE]``; ``channel_low`` and ``channel_high`` are those of the channels, or empty.
    """
    whole = values.size // TILE * TILE if TILE % lanes == 0 else 0
    tile_low, tile_high = tile[0], tile[1]
    tile_low[:], tile_high[:] = KEY_HIGHEST, KEY_LOWEST
    _scan_tiles(values[:whole], bits[:whole], scales, tile_low, tile_high, slots)
    _fold(tile_low, tile_high, lanes)
    low, high = _scan(values[whole:], bits[whole:], scales, slots[whole:])
    low, high = min(low, tile_low[:lanes].min()), max(high, tile_high[:lanes].max())
    finite = low > ~INFINITE and high < INFINITE
    if not finite:
        low, high = _finite_extrema(bits)
        whole = 0
    if whole:
        _merge_extrema(channel_low, channel_high, tile_low, tile_high)
    _channel_extrema(bits[whole:], 1, channel_low, channel_high)
    return low, high, finite


@compiled_helper
def _leave_padding_out(values: NDArray[np.float32], width: int, valid: int, kept: NDArray[np.float32]) -> int:
    """Copy the first ``valid`` of each ``width`` values; returns how many."""
    places = values.size // width
    if valid % QUAD:
        for place in range(places):
            for lane in range(valid):
                kept[valid * place + lane] = values[width * place + lane]
        return valid * places
    quads, step = valid // QUAD, width // QUAD
    for place in range(places):
        for quad in range(quads):
            source, target = step * place + quad, quads * place + quad
            for lane in range(QUAD):
                kept[QUAD * target + lane] = values[QUAD * source + lane]
    return valid * places


@compiled_helper
def _channel_extrema(
    bits: NDArray[np.int32], inner: int, channel_low: NDArray[np.int32], channel_high: NDArray[np.int32]
) -> None:
    """Update channel keys from ``bits[outer, channels, inner]`` with short rows, skipping non-finite values."""
    channels = channel_low.size
    if not channels:
        return
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


@compiled_helper
def _scale_bits(state: NDArray[np.int64]) -> NDArray[np.int32]:
    """One over the bin width of each region, as float32 bits."""
    scales = np.empty(REGIONS, np.int32)
    for region in range(REGIONS):
        scales[region] = (127 - state[EXPONENT + region]) << 23
    return scales


@compiled_helper
def _stretches(size: int, inner: int, width: int) -> tuple[bool, int, int]:
    """Whether channel extrema are found with the slots; values side by side of one channel; and in one piece."""
    whole = max(size, 1)
    if width > 1:
        return True, inner, inner * width
    by_rows = inner >= SHORT_ROW
    return by_rows, inner if by_rows else whole, whole


@compiled
def count_tensor(
    values: NDArray[np.float32],
    bits: NDArray[np.int32],
    inner: int,
    width: int,
    channels: int,
    bounds: NDArray[np.float32],
    state: NDArray[np.int64],
    counts: NDArray[np.uint32],
    channel_low: NDArray[np.int32],
    channel_high: NDArray[np.int32],
    tails: NDArray[np.int32],
    lanes: NDArray[np.uint32],
    slots: NDArray[np.uint16],
    kept: NDArray[np.float32],
) -> None:
    """Count one activation tensor into its accumulator.

    Args:
        values: float32 ``[outer * channels * inner]``, contiguous; or ``[outer * blocks * inner * width]``.
        bits: the same memory as int32.
        inner: values of a channel that lie side by side, or places of a block.
        width: channels a block, one of ``WIDTHS``; 1 where the tensor does not come in blocks.
        channels: how many there are, without padding; of no account where ``width`` is 1.
        bounds: float32 ``[2]``: ``low < 0`` and ``high > 0``, infinite for none.
        state: int64 ``[STATE_SIZE]``: finite count, non-finite count, smallest and largest key,
            bin exponents and highest bins in use of the four regions; updated.
        counts: uint32 ``[2 or REGIONS, BINS]``, 2 without bounds; updated, a region widened when a larger
            magnitude arrives. With these values it holds fewer than ``MOST``.
        channel_low: int32 ``[channels]`` keys, updated; length 0 when channels are not tracked.
        channel_high: int32 ``[channels]`` keys, likewise.
        tails: int32 ``[2, TAIL]``: largest magnitudes of the non-negative and of the negative values as float32 bits,
            ascending, -1 where there are fewer; updated.
        lanes: uint32 ``[LANES - 1, LANE_SIZE]`` scratch, zero on entry and on return.
        slots: uint16 ``[BLOCK]`` scratch.
        kept: float32 ``[BLOCK]`` scratch.
    """
    few, in_four, flat = values.size <= FEW, False, counts.reshape(-1)
    by_rows, row, stretch = _stretches(values.size, inner, width)
    tracked = channel_low.size * by_rows
    blocks = (channels + width - 1) // width
    tile, magnitudes = np.empty((2, TILE), np.int32), np.empty(REGIONS, np.int64)
    scale_bits = _scale_bits(state)
    scales = scale_bits.view(np.float32)
    start = 0
    while start < values.size:
        end = min(start + BLOCK, (start // stretch + 1) * stretch)
        block, block_bits = values[start:end], bits[start:end]
        size = block.size
        if width > 1:
            channel = start // stretch % blocks * width
            valid = min(width, channels - channel)
            lows, highs = channel_low[channel : channel + valid], channel_high[channel : channel + valid]
            if valid < width:
                size = _leave_padding_out(block, width, valid, kept)
                block, block_bits = kept[:size], kept[:size].view(np.int32)
            low, high, finite = _scan_lanes(block, block_bits, valid, tile, scales, lows, highs, slots)
        else:
            lows, highs = channel_low[:tracked], channel_high[:tracked]
            low, high, finite = _scan_rows(block, block_bits, start, row, scales, lows, highs, slots)
        if not finite:
            left = _keep_finite(block, block_bits, kept)
            state[NONFINITE] += size - left
            size = left
            block, block_bits = kept[:size], kept[:size].view(np.int32)
        if size:
            if _enters(low, high, tails):
                _note_largest(block_bits, tails)
            grew, beyond = _make_room(low, high, size, bounds, state, counts, lanes, scale_bits, magnitudes)
            _mend_slots(block, block_bits, grew or not finite, beyond, scales, bounds, slots)
            in_four |= _count_slots(slots[:size], low == high, few, flat, lanes, values, end)
        start = end
    if not by_rows:
        _channel_extrema(bits, inner, channel_low, channel_high)
    if in_four:
        _flush_all(lanes, counts, state)
    state[TOP:] = -1
