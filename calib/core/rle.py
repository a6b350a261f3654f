"""COCO run-length masks and polygons.

Runs go down the columns, the first run counts zeros. The compressed text stores each run in 5-bit groups, least
significant first, 0x20 marking that more follow, the sign in the top bit of the last group, each group offset by 48;
from the third run on the difference to the run two before is stored (format of cocoapi's ``maskApi``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray


def decode_counts(text: str) -> NDArray[np.int64]:
    """Decode compressed RLE text to run lengths, int64.

    Raises:
        ValueError: a character outside the alphabet, a cut-off run, or a negative run.
    """
    runs: list[int] = []
    value = shift = 0
    for code in text.encode("utf-8"):
        group = code - 48
        if not 0 <= group < 64 or shift > 60:
            raise ValueError(f"character {chr(code)!r} does not belong into compressed RLE text")
        value |= (group & 0x1F) << shift
        shift += 5
        if group & 0x20:
            continue
        if group & 0x10:
            value -= 1 << shift
        runs.append(value + (runs[-2] if len(runs) > 2 else 0))
        value = shift = 0
    if shift:
        raise ValueError("the compressed RLE text ends inside a run")
    return _checked(runs)


def encode_counts(counts: Sequence[int] | NDArray[np.int64]) -> str:
    """Encode run lengths as compressed RLE text."""
    runs = [int(run) for run in counts]
    groups: list[int] = []
    for index, run in enumerate(runs):
        value = run - runs[index - 2] if index > 2 else run
        more = True
        while more:
            group = value & 0x1F
            value >>= 5
            more = value != (-1 if group & 0x10 else 0)
            groups.append((group | 0x20 if more else group) + 48)
    return bytes(groups).decode("ascii")


def runs_to_mask(counts: Sequence[int] | NDArray[np.int64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Expand run lengths to a mask.

    Args:
        counts: run lengths, zeros first.
        size: ``(height, width)``.

    Returns:
        bool ``[H, W]``.

    Raises:
        ValueError: a negative run, or runs that do not fill the size exactly.
    """
    runs = _checked(counts)
    height, width = size
    if int(runs.sum()) != height * width:
        raise ValueError(f"runs cover {int(runs.sum())} pixels, the size {height} x {width} has {height * width}")
    values = np.arange(len(runs)) % 2 == 1
    return np.repeat(values, runs).reshape(width, height).T


def mask_to_runs(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Run lengths of a bool ``[H, W]`` mask, zeros first, down the columns."""
    flat = np.concatenate(([False], mask.T.reshape(-1)))
    changes = np.flatnonzero(flat[1:] != flat[:-1])
    return np.diff(np.concatenate(([0], changes, [mask.size])))


def fill_polygon(points: NDArray[np.float64], size: tuple[int, int]) -> NDArray[np.bool_]:
    """Rasterise one polygon: a pixel belongs to it when its centre lies inside (even-odd rule).

    Args:
        points: float64 ``[N, 2]`` of x, y in pixels, origin at the outer corner of the first pixel, closed implicitly.
        size: ``(height, width)``; what lies outside is cut off.

    Returns:
        bool ``[H, W]``.
    """
    height, width = size
    mask = np.zeros(size, np.bool_)
    left, top = (max(0, int(np.floor(low))) for low in points.min(axis=0))
    right, bottom = (
        min(most, int(np.ceil(high))) for most, high in zip((width, height), points.max(axis=0), strict=True)
    )
    if left >= right or top >= bottom:
        return mask
    toggles = np.zeros((bottom - top, right - left + 1), np.uint8)
    for rows, columns in _crossings(points - (left, top), bottom - top):
        inside = np.clip(np.ceil(columns - 0.5), 0, right - left).astype(np.int64)
        toggles[rows, inside] ^= 1  # an edge crosses each row once, so no index occurs twice
    mask[top:bottom, left:right] = np.bitwise_xor.accumulate(toggles, axis=1)[:, :-1]
    return mask


def _crossings(points: NDArray[np.float64], height: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64]]]:
    """Yield, for each edge, the rows whose middle line it crosses and the x positions of the crossings."""
    for (x0, y0), (x1, y1) in zip(points, np.roll(points, -1, axis=0), strict=True):
        first, last = max(0, int(np.ceil(min(y0, y1) - 0.5))), min(height, int(np.ceil(max(y0, y1) - 0.5)))
        if first < last:
            rows = np.arange(first, last)
            yield rows, x0 + (rows + 0.5 - y0) * (x1 - x0) / (y1 - y0)


def _checked(counts: Sequence[int] | NDArray[np.int64]) -> NDArray[np.int64]:
    runs = np.asarray(counts, np.int64)
    if runs.ndim != 1 or (runs < 0).any():
        raise ValueError("run lengths must be a list of whole numbers that are not negative")
    return runs
