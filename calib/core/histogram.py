"""Streaming tensor statistics: counting, clipping, merging, all exact and order-free.

The bin exponent is a function of the largest magnitude alone and widening sums neighbouring bins, so any batching,
any number of workers and any order of images end in the same counts.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core import kernels
from calib.types.statistics import TensorStatistics

_scratch = threading.local()
_NOTHING = np.empty(0, np.float32)


@dataclass(frozen=True)
class Magnitudes:
    """Counts of magnitudes in bins of width ``2**exponent``, int64 ``[bins]``, the highest bin in use or bin 0 last."""

    exponent: int
    counts: NDArray[np.int64]

    @property
    def total(self) -> int:
        """Number of values counted."""
        return int(self.counts.sum())

    def widened(self, exponent: int) -> Magnitudes:
        """The same counts in bins of a larger or equal width."""
        counts = np.ascontiguousarray(self.counts, np.int64).copy()
        kernels.widen(counts, exponent - self.exponent)
        return Magnitudes(exponent, _trimmed(counts))


def join(first: Magnitudes, second: Magnitudes) -> Magnitudes:
    """Add two counts at the wider of the two bin widths."""
    exponent = max(first.exponent, second.exponent)
    sides = [side.widened(exponent).counts for side in (first, second)]
    size = max(side.size for side in sides)
    return Magnitudes(exponent, sum((_padded(side, size) for side in sides), np.zeros(size, np.int64)))


def repeated(magnitude: float, count: int) -> Magnitudes:
    """``count`` copies of one magnitude."""
    bits = int(np.float32(magnitude).view(np.int32))
    exponent = kernels.exponent_for(bits) if count else kernels.MIN_EXPONENT
    counts = np.zeros(kernels.bin_of(bits, exponent) + 1 if count else 1, np.int64)
    counts[-1] = count
    return Magnitudes(exponent, counts)


class TensorAccumulator:
    """Counts the values of one tensor, array by array. Not for use from two threads at once.

    Args:
        name: tensor name.
        channel_axis: axis whose extrema are tracked, or None.
        low: lower bound (at most 0) at which :meth:`clipped` can be asked, or None. Asking at 0 is always possible.
        high: upper bound (at least 0) likewise.

    Raises:
        ValueError: a bound is NaN or on the wrong side of 0.
    """

    def __init__(
        self, name: str, channel_axis: int | None = None, low: float | None = None, high: float | None = None
    ) -> None:
        self.name = name
        self.channel_axis = channel_axis
        if not ((low is None or low <= 0) and (high is None or high >= 0)):
            raise ValueError(f"bounds of {name!r} must enclose 0, got {low} and {high}")
        self._bounds = _as_bounds(low or None, high or None)  # signs alone tell what a bound of 0 clips
        self._state = np.zeros(kernels.STATE_SIZE, np.int64)
        self._state[kernels.EXPONENT : kernels.TOP] = kernels.MIN_EXPONENT
        self._state[kernels.TOP :] = -1
        self._state[kernels.LOW] = kernels.KEY_HIGHEST
        self._state[kernels.HIGH] = kernels.KEY_LOWEST
        regions = kernels.REGIONS if np.isfinite(self._bounds).any() else kernels.REGIONS // 2
        self._counts = np.zeros((regions, kernels.BINS), np.uint32)
        self._held = 0
        self._emptied = [repeated(0.0, 0)] * regions
        self._channels = np.empty((2, 0), np.int32)
        self._tails = np.full((2, kernels.TAIL), -1, np.int32)

    @property
    def nonfinite(self) -> int:
        """Number of NaN and infinite values so far."""
        return int(self._state[kernels.NONFINITE])

    def update(self, array: NDArray[Any]) -> None:
        """Count every value of a host array of any shape and layout; other types are counted as float32."""
        values = _as_floats(array)
        self._count(values, self._fit_channels(np.shape(array)), 1, 0)

    def update_blocks(self, blocks: NDArray[np.float32], channels: int) -> None:
        """Count a tensor ``[N, C, H, W]`` that comes in blocks of channels; what is behind the last one is padding.

        Args:
            blocks: contiguous float32 ``[N, ceil(C / width), H, W, width]``, the width one of ``kernels.WIDTHS``.
            channels: C.
        """
        images, _, height, breadth, width = blocks.shape
        shape = (images, channels, height, breadth)
        if self.channel_axis not in (None, 1):
            parts = blocks.transpose(0, 1, 4, 2, 3).reshape(images, -1, height, breadth)
            self.update(parts[:, :channels])
        elif math.prod(shape):
            self._fit_channels(shape)
            self._count(_as_floats(blocks), height * breadth, width, channels)

    def _count(self, values: NDArray[np.float32], inner: int, width: int, channels: int) -> None:
        if self._held + values.size >= kernels.MOST:
            self._empty()
        self._held += values.size
        low, high = self._channels
        kernels.count_tensor(
            values,
            values.view(np.int32),
            inner,
            width,
            channels,
            self._bounds,
            self._state,
            self._counts,
            low,
            high,
            self._tails,
            *_buffers(),
        )

    def _empty(self) -> None:
        """Put what the histogram holds where it has room to grow."""
        self._emptied = [self._region(region) for region in range(len(self._emptied))]
        self._counts[:] = 0
        self._held = 0

    def statistics(self) -> TensorStatistics:
        """Freeze what was counted so far."""
        count = int(self._state[kernels.COUNT])
        low, high = _from_keys(self._state[[kernels.LOW, kernels.HIGH]])
        seen = self._channels[0] <= self._channels[1]
        return _pack(
            self.name,
            (count, self.nonfinite),
            (float(low), float(high)) if count else (np.inf, -np.inf),
            join(self._region(1), self._region(3)),
            join(self._region(0), self._region(2)),
            self.channel_axis,
            np.where(seen, _from_keys(self._channels[0]), np.float32(np.inf)),
            np.where(seen, _from_keys(self._channels[1]), np.float32(-np.inf)),
            _largest(self._tail(0), self._tail(1)),
        )

    def clipped(self, name: str, low: float | None, high: float | None) -> TensorStatistics:
        """Statistics of ``clip(x, low, high)``, exactly as counting the clipped values would give them.

        A non-finite value stays one, even where a bound would make it finite.

        Args:
            name: name of the clipped tensor.
            low: None, 0, or the bound this accumulator was made with.
            high: likewise.

        Raises:
            ValueError: another bound.
        """
        bounds = _as_bounds(low, high)
        if not all(new in (0, np.inf, -np.inf, own) for new, own in zip(bounds, self._bounds, strict=True)):
            raise ValueError(f"{self.name!r} was not counted with the bounds {low} and {high}")
        whole = self.statistics()
        positive = self._limited(0, high)
        negative = self._limited(1, None if low is None else -low)
        if low == 0:  # a value clipped to 0 counts as non-negative
            positive, negative = join(positive, negative), repeated(0.0, 0)
        return _pack(
            name,
            (whole.count, whole.nonfinite),
            (_clip(whole.minimum, bounds), _clip(whole.maximum, bounds)) if whole.count else (np.inf, -np.inf),
            negative,
            positive,
            whole.channel_axis,
            _clip_channels(whole.channel_minimum, bounds),
            _clip_channels(whole.channel_maximum, bounds),
            _largest(*self._clipped_tails(whole, *bounds)),
        )

    def _tail(self, sign: int) -> NDArray[np.float32]:
        """Largest magnitudes of the non-negative (0) or the negative values (1)."""
        bits: NDArray[np.int32] = self._tails[sign][self._tails[sign] >= 0]
        return bits.view(np.float32)

    def _clipped_tails(
        self, whole: TensorStatistics, low: Any, high: Any
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """The same of the clipped values."""
        above, below = np.minimum(self._tail(0), high), np.minimum(self._tail(1), -low)
        if low == 0:
            below = np.zeros(min(int(whole.negative.sum()), kernels.TAIL), np.float32)
        return above, below

    def _region(self, region: int) -> Magnitudes:
        if region >= self._counts.shape[0]:
            return repeated(0.0, 0)
        held = Magnitudes(int(self._state[kernels.EXPONENT + region]), _trimmed(self._counts[region].astype(np.int64)))
        return join(self._emptied[region], held)

    def _limited(self, region: int, bound: float | None) -> Magnitudes:
        """Magnitudes of one sign, those above ``bound`` moved onto it."""
        inner, outer = self._region(region), self._region(region + 2)
        if bound is None:
            return join(inner, outer)
        if bound == 0:
            return repeated(0.0, inner.total + outer.total)
        return join(inner, repeated(bound, outer.total))

    def _fit_channels(self, shape: tuple[int, ...]) -> int:
        """Values of a channel side by side; channel tracking ends where the axis or its length does not fit."""
        axis, size = self.channel_axis, math.prod(shape)
        if axis is None or not size:
            return 1
        channels = shape[axis] if -len(shape) <= axis < len(shape) else 0
        if not channels or self._channels.shape[1] not in (0, channels):
            self.channel_axis, self._channels = None, np.empty((2, 0), np.int32)
            return 1
        if not self._channels.shape[1]:
            self._channels = np.empty((2, channels), np.int32)
            self._channels[0], self._channels[1] = kernels.KEY_HIGHEST, kernels.KEY_LOWEST
        return math.prod(shape[axis % len(shape) + 1 :])


def collect_statistics(name: str, arrays: Iterable[NDArray[Any]], channel_axis: int | None = None) -> TensorStatistics:
    """Count arrays, one after the other, into the statistics of one tensor."""
    accumulator = TensorAccumulator(name, channel_axis)
    for array in arrays:
        accumulator.update(array)
    return accumulator.statistics()


def merge(first: TensorStatistics, second: TensorStatistics) -> TensorStatistics:
    """Join the statistics of two disjoint sets of values of one tensor: exact, associative and commutative.

    Channel extrema survive where both sides track the same channels, or one side saw nothing.
    """
    axis, low, high = _merged_channels(first, second)
    return _pack(
        first.name,
        (first.count + second.count, first.nonfinite + second.nonfinite),
        (min(first.minimum, second.minimum), max(first.maximum, second.maximum)),
        join(Magnitudes(first.exponent, first.negative), Magnitudes(second.exponent, second.negative)),
        join(Magnitudes(first.exponent, first.positive), Magnitudes(second.exponent, second.positive)),
        axis,
        low,
        high,
        _largest(first.tail, second.tail) if _has_tail(first) and _has_tail(second) else _NOTHING,
    )


def merge_all(parts: Iterable[TensorStatistics]) -> TensorStatistics:
    """Merge the statistics of one tensor from one or more parts."""
    return reduce(merge, parts)


def renamed(statistics: TensorStatistics, name: str, channel_axis: int | None) -> TensorStatistics:
    """The same counts under another tensor's name; ``channel_axis=None`` drops the channel extrema."""
    if channel_axis is not None and statistics.channel_axis is not None:
        return replace(statistics, name=name, channel_axis=channel_axis)
    return replace(statistics, name=name, channel_axis=None, channel_minimum=_NOTHING, channel_maximum=_NOTHING)


def concatenated(
    name: str, parts: Iterable[TensorStatistics], channel_axis: int | None, *, along: bool
) -> TensorStatistics:
    """Statistics of a concatenation.

    Args:
        name: name of the result.
        parts: statistics of the joined tensors, in order.
        channel_axis: channel axis of the result, or None.
        along: whether the tensors are joined along the channel axis.
    """
    sources = list(parts)
    whole = replace(merge_all(sources), name=name)
    if channel_axis is None or not along:
        return renamed(whole, name, channel_axis)
    if any(source.channel_axis is None for source in sources):
        return renamed(whole, name, None)
    return replace(
        whole,
        channel_axis=channel_axis,
        channel_minimum=_frozen(np.concatenate([source.channel_minimum for source in sources])),
        channel_maximum=_frozen(np.concatenate([source.channel_maximum for source in sources])),
    )


def _pack(
    name: str,
    counted: tuple[int, int],
    extrema: tuple[float, float],
    negative: Magnitudes,
    positive: Magnitudes,
    channel_axis: int | None,
    channel_minimum: NDArray[np.float32],
    channel_maximum: NDArray[np.float32],
    tail: NDArray[np.float32],
) -> TensorStatistics:
    exponent = max(negative.exponent, positive.exponent)
    below, above = negative.widened(exponent).counts, positive.widened(exponent).counts
    size = max(below.size, above.size)
    return TensorStatistics(
        name=name,
        count=counted[0],
        nonfinite=counted[1],
        minimum=extrema[0],
        maximum=extrema[1],
        exponent=exponent,
        negative=_frozen(_padded(below, size)),
        positive=_frozen(_padded(above, size)),
        channel_axis=channel_axis,
        channel_minimum=_frozen(channel_minimum),
        channel_maximum=_frozen(channel_maximum),
        tail=_frozen(tail),
    )


def _largest(first: NDArray[np.float32], second: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest of both, ascending."""
    return np.sort(np.concatenate([first, second]))[-kernels.TAIL :]


def _has_tail(statistics: TensorStatistics) -> bool:
    return statistics.tail.size == min(statistics.count, kernels.TAIL)


def _merged_channels(
    first: TensorStatistics, second: TensorStatistics
) -> tuple[int | None, NDArray[np.float32], NDArray[np.float32]]:
    for side, other in ((first, second), (second, first)):
        if not side.count and not side.nonfinite:
            return other.channel_axis, other.channel_minimum, other.channel_maximum
    same = first.channel_axis == second.channel_axis and first.channel_minimum.size == second.channel_minimum.size
    if not same or first.channel_axis is None:
        return None, _NOTHING, _NOTHING
    low = np.minimum(first.channel_minimum, second.channel_minimum)
    return first.channel_axis, low, np.maximum(first.channel_maximum, second.channel_maximum)


def _as_bounds(low: float | None, high: float | None) -> NDArray[np.float32]:
    return np.array([-np.inf if low is None else low, np.inf if high is None else high], np.float32)


def _as_floats(array: NDArray[Any]) -> NDArray[np.float32]:
    """Values in C order, float32 ``[size]``; marked read-only whether or not they are, for one compiled kernel."""
    given = np.asarray(array)
    if given.dtype != np.float32 or not given.flags.aligned or not given.flags.c_contiguous:
        with np.errstate(over="ignore", invalid="ignore"):  # a float64 beyond float32 counts as infinite
            given = np.require(given, np.float32, ("C", "A"))
    values = given.reshape(-1)
    values.flags.writeable = False
    return values


def _clip(value: float, bounds: NDArray[np.float32]) -> float:
    return float(np.clip(np.float32(value), *bounds)) + 0.0  # + 0.0 turns -0.0 into 0.0


def _clip_channels(values: NDArray[np.float32], bounds: NDArray[np.float32]) -> NDArray[np.float32]:
    """Clip channel extrema; infinite ones mark a channel without a finite value and stay."""
    return np.where(np.isfinite(values), np.clip(values, *bounds) + np.float32(0), values)


def _from_keys(keys: NDArray[Any]) -> NDArray[np.float32]:
    """Floats of ordered integer keys, -0.0 as 0.0."""
    narrow = np.ascontiguousarray(keys).astype(np.int32)
    bits: NDArray[np.int32] = np.where(narrow < 0, narrow ^ kernels.KEY_MASK, narrow)
    return bits.view(np.float32) + np.float32(0)


def _trimmed(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    used = np.flatnonzero(counts)
    return counts[: int(used[-1]) + 1 if used.size else 1]


def _padded(counts: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    return np.pad(counts, (0, size - counts.size))


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    result = np.array(array)
    result.flags.writeable = False
    return result


def _buffers() -> tuple[NDArray[np.uint32], NDArray[np.uint16], NDArray[np.float32]]:
    """Scratch of the calling thread; the kernels leave it clean."""
    if not hasattr(_scratch, "buffers"):
        _scratch.buffers = (
            np.zeros((kernels.LANES - 1, kernels.LANE_SIZE), np.uint32),
            np.empty(kernels.BLOCK, np.uint16),
            np.empty(kernels.BLOCK, np.float32),
        )
    buffers: tuple[NDArray[np.uint32], NDArray[np.uint16], NDArray[np.float32]] = _scratch.buffers
    return buffers
