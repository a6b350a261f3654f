"""From logits to a class map at the label's size: bilinear resize and argmax in one pass, row by row.

The resized logits never exist as a whole: two source rows at a time are stretched to the label's width, blended, and
compared class by class. Blending runs in float32; a pixel whose two best classes come closer than float32 can tell
apart is computed again in float64, so every decision is that of a float64 resize followed by an argmax, and ties are
exact ones. Of equal logits the first class wins, for every network alike.

Sampling is that of ``align_corners=False``: pixel centres lie at ``i + 0.5``, and what would lie outside the source
takes its border's value. This is what ``torch.nn.functional.interpolate``, ``cv2.resize`` and ONNX ``half_pixel`` do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled, compiled_helper

ROUNDING = 2.0e-6
"""Bound of the float32 error of the difference of two blended logits, relative to the largest magnitude around:
ten roundings of 2**-24 for each of the two, with room."""

MAGNITUDE: Any = np.int32(0x7FFFFFFF)
INFINITE: Any = np.int32(0x7F800000)
TIES, NON_FINITE = 0, 1
"""Slots of the counts a prediction returns."""


@dataclass(frozen=True)
class Sampling:
    """Where the pixels of one axis of the label lie in the logits.

    Attributes:
        low: int64 ``[n]``, the source cell before each pixel's centre.
        high: int64 ``[n]``, the one behind it.
        weight: float64 ``[n]``, share of ``high``, 0..1.
        nearest: int64 ``[n]``, the cell each pixel's centre lies in.
    """

    low: NDArray[np.int64]
    high: NDArray[np.int64]
    weight: NDArray[np.float64]
    nearest: NDArray[np.int64]


def sampling(count: int, cells: int, network: int, start: int, length: int) -> Sampling:
    """Work out where label pixels lie in the logits, along one axis; in whole numbers, so that nothing is rounded.

    Args:
        count: label pixels.
        cells: cells of the logits over the whole network input.
        network: pixels of the network input.
        start: first pixel of the network input that shows the label's part of the picture.
        length: number of such pixels.
    """
    centre = cells * (2 * count * start + (2 * np.arange(count, dtype=np.int64) + 1) * length)
    unit = 2 * count * network
    first, last = cells * start // network, -(-cells * (start + length) // network) - 1
    doubled = np.clip(2 * centre - unit, 2 * unit * first, 2 * unit * last)
    low, rest = np.divmod(doubled, 2 * unit)
    return Sampling(
        low=low,
        high=np.minimum(low + (rest > 0), last),
        weight=rest / (2 * unit),
        nearest=np.clip(centre // unit, first, last),
    )


def predict_classes(
    logits: NDArray[np.float32], rows: Sampling, columns: Sampling, predicted: NDArray[Any], classes: int
) -> tuple[int, int]:
    """Resize logits and take the best class of every pixel.

    Args:
        logits: float32 ``[C, h, w]``, any strides, ``C`` of at least 2.
        rows: vertical sampling.
        columns: horizontal sampling.
        predicted: uint8 or uint16 ``[H, W]``, filled; channels from ``classes`` on keep their number where it lies
            below the dtype's two highest codes. A pixel with a NaN gets the second-highest code.
        classes: number of classes; not more than fit ``predicted``.

    Returns:
        pixels whose best logit two or more classes share, and pixels with a NaN.
    """
    counts = np.zeros(2, np.int64)
    nothing = np.iinfo(predicted.dtype).max - 1
    bits = logits.view(np.int32)
    vertical = (rows.low, rows.high, rows.weight)
    horizontal = (columns.low, columns.high, columns.weight)
    limit = min(logits.shape[0], nothing)
    _predict(logits, bits, vertical, horizontal, predicted, limit, nothing, counts)
    return int(counts[TIES]), int(counts[NON_FINITE])


def predict_binary(
    scores: NDArray[np.float32], threshold: float, rows: Sampling, columns: Sampling, predicted: NDArray[Any]
) -> tuple[int, int]:
    """Resize the scores of one class and compare with a threshold: class 1 above it, class 0 else.

    Args:
        scores: float32 ``[h, w]``.
        threshold: 0 for logits, 0.5 for probabilities.
        rows: vertical sampling.
        columns: horizontal sampling.
        predicted: uint8 or uint16 ``[H, W]``, filled; a NaN gets the second-highest code.

    Returns:
        pixels that meet the threshold exactly, and pixels with a NaN.
    """
    wide = scores.astype(np.float64)
    stretched = _blend(wide[:, columns.low], wide[:, columns.high], columns.weight)
    values = _blend(stretched[rows.low], stretched[rows.high], rows.weight[:, None])
    lost = np.isnan(values)
    predicted[...] = values > threshold
    predicted[lost] = np.iinfo(predicted.dtype).max - 1
    return int(np.count_nonzero(values == threshold)), int(np.count_nonzero(lost))


def predict_nearest(ids: NDArray[Any], rows: Sampling, columns: Sampling) -> NDArray[Any]:
    """Enlarge or shrink a map of class numbers ``[h, w]`` to ``[H, W]`` by the cell each pixel's centre lies in."""
    return ids[rows.nearest[:, None], columns.nearest[None, :]]


def _blend(low: NDArray[Any], high: NDArray[Any], weight: NDArray[Any]) -> NDArray[Any]:
    """Mix; a weight of zero takes ``low`` as it is, so that an infinite neighbour does not make it NaN."""
    with np.errstate(invalid="ignore"):
        return np.where(weight == 0, low, (1 - weight) * low + weight * high)


@compiled_helper
def _largest_magnitude(pattern: Any) -> Any:
    """Bits of the largest magnitude of a row, which order like the magnitudes; a NaN is above all numbers."""
    largest = np.int32(0)
    for x in range(pattern.size):
        largest = max(largest, np.int32(pattern[x] & MAGNITUDE))
    return largest


@compiled_helper
def _magnitude_of(bits: Any, row: int) -> Any:
    """Bits of the largest magnitude of one source row of all classes."""
    largest = np.int32(0)
    for channel in range(bits.shape[0]):
        largest = max(largest, _largest_magnitude(bits[channel, row]))
    return largest


@compiled_helper
def _copy(source: Any, first: int, target: Any) -> None:
    for x in range(target.size):
        target[x] = source[first + x]


@compiled_helper
def _stretch(logits: Any, row: int, low: Any, high: Any, weight: Any, shifted: bool, stretched: Any) -> None:
    """Stretch one source row of all classes to the label's width, into the slot of its parity."""
    for channel in range(logits.shape[0]):
        source, target = logits[channel, row], stretched[channel, row & 1]
        if shifted:
            _copy(source, low[0], target)
        else:
            for x in range(target.size):
                share = weight[x]
                target[x] = (np.float32(1) - share) * source[low[x]] + share * source[high[x]]


@compiled_helper
def _best_of_row(
    rows: Any, above: int, below: int, first: int, share: Any, channels: int, leaders: Any, winner: Any
) -> None:
    """Blend two rows class by class; keeps the best and the second-best value and the best class.

    All rows lie in one array, and both values in another: with few arrays the loops become vector instructions.
    """
    rest = np.float32(1) - share
    best, second = leaders[0], leaders[1]
    width = best.size
    for x in range(width):
        best[x] = rest * rows[0, above, first + x] + share * rows[0, below, first + x]
        second[x] = -np.inf
        winner[x] = np.int32(0)
    for channel in range(1, channels):
        upper, lower = rows[channel, above, first : first + width], rows[channel, below, first : first + width]
        number = np.int32(channel)
        for x in range(width):
            value = rest * upper[x] + share * lower[x]
            leader = best[x]
            ahead = value > leader
            smaller = leader if ahead else value
            second[x] = smaller if smaller > second[x] else second[x]
            best[x] = value if ahead else leader
            winner[x] = number if ahead else winner[x]


@compiled_helper
def _mix(low: float, high: float, weight: float) -> float:
    return low if weight == 0.0 else (1.0 - weight) * low + weight * high


@compiled_helper
def _decide(
    logits: Any, y0: int, y1: int, wy: float, x0: int, x1: int, wx: float, channels: int, nothing: int, counts: Any
) -> int:
    """Decide one pixel in float64."""
    best, winner, ties = -np.inf, 0, 0
    for channel in range(channels):
        upper = _mix(np.float64(logits[channel, y0, x0]), np.float64(logits[channel, y0, x1]), wx)
        lower = _mix(np.float64(logits[channel, y1, x0]), np.float64(logits[channel, y1, x1]), wx)
        value = _mix(upper, lower, wy)
        if np.isnan(value):
            counts[NON_FINITE] += 1
            return nothing
        if value > best or channel == 0:
            best, winner, ties = value, channel, 0
        elif value == best:
            ties = 1
    counts[TIES] += ties
    return winner


@compiled
def _predict(
    logits: Any, bits: Any, vertical: Any, horizontal: Any, predicted: Any, channels: int, nothing: int, counts: Any
) -> None:
    rows_low, rows_high, rows_weight = vertical
    low, high, weight = horizontal
    width = predicted.shape[1]
    narrow = weight.astype(np.float32)
    shifted = bool(low[width - 1] - low[0] == width - 1 and weight.max() == 0.0)
    packed = shifted and logits.strides[2] == 4  # rows as wide as the label's need no stretching
    stretched = np.empty((channels, 2, width), np.float32)
    held = np.full(2, -1, np.int64)
    magnitude = np.zeros(2, np.int32)
    leaders = np.empty((2, width), np.float32)
    winner = np.empty(width, np.int32)
    span = np.empty(1, np.int32)
    for y in range(predicted.shape[0]):
        y0, y1, wy = rows_low[y], rows_high[y], rows_weight[y]
        for source in (y0, y1):
            slot = source & 1
            if held[slot] != source:
                magnitude[slot] = _magnitude_of(bits[:channels], source)
                if not packed:
                    _stretch(logits[:channels], source, low, high, narrow, shifted, stretched)
                held[slot] = source
        span[0] = max(magnitude[y0 & 1], magnitude[y1 & 1])
        bound = np.float32(np.inf)
        if span[0] < INFINITE:
            bound = np.float32(ROUNDING) * span.view(np.float32)[0]
            if packed:
                _best_of_row(logits, y0, y1, low[0], np.float32(wy), channels, leaders, winner)
            else:
                _best_of_row(stretched, y0 & 1, y1 & 1, 0, np.float32(wy), channels, leaders, winner)
        row = predicted[y]
        for x in range(width):
            row[x] = winner[x]
        for x in range(width):
            if bound == np.inf or not leaders[0, x] - leaders[1, x] > bound:
                row[x] = _decide(logits, y0, y1, wy, low[x], high[x], weight[x], channels, nothing, counts)
