# mypy: disallow-untyped-decorators=False
"""Counting kernels of the scan: single passes over luma and labels that release the GIL.

All counts are integers, so no result depends on the order of the pixels.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

AREA_BINS = 24
"""Object areas are counted by ``floor(log2(area))``; bin 0 also holds areas below one pixel, the last all larger."""

TILE = 2000
"""Columns whose squared Laplacians (at most 1020 squared) sum to less than 2**31."""

BLOCKS = 32
"""Side of the grid of block means under the perceptual hash and the thumbnail."""


@numba.njit(nogil=True, cache=True)
def count_levels(luma: NDArray[np.uint8], levels: NDArray[np.int64]) -> None:
    """Count grey levels of uint8 ``[H, W]`` luma into int64 ``[256]``."""
    height, width = luma.shape
    counts = np.zeros((4, 256), np.int64)  # four counters, so that equal neighbours do not wait for each other
    whole = width - width % 4
    for y in range(height):
        row = luma[y]
        for x in range(0, whole, 4):
            counts[0, row[x]] += 1
            counts[1, row[x + 1]] += 1
            counts[2, row[x + 2]] += 1
            counts[3, row[x + 3]] += 1
        for x in range(whole, width):
            counts[0, row[x]] += 1
    levels[:] = counts.sum(axis=0)


@numba.njit(nogil=True, cache=True)
def measure_edges(luma: NDArray[np.uint8], steep: int) -> tuple[int, int, int]:
    """Count steep pixels and sum the moments of the Laplacian, over the pixels that have all four neighbours.

    The casts keep the arithmetic in 32 bits, which doubles the lanes of a vector; ``TILE`` keeps it from overflowing.

    Args:
        luma: uint8 ``[H, W]``.
        steep: a pixel is steep when ``gx**2 + gy**2 >= steep``, where ``gx`` and ``gy`` are the differences
            of the two neighbours on either side; below 2**31.

    Returns:
        Number of steep pixels; sum and sum of squares of the 4-neighbour Laplacian.
    """
    height, width = luma.shape
    limit = np.int32(steep)
    edges, total, squares = 0, 0, 0
    for y in range(1, height - 1):
        for start in range(1, width - 1, TILE):
            stop = min(start + TILE, width - 1)
            above, middle, below = luma[y - 1, start:stop], luma[y, start:stop], luma[y + 1, start:stop]
            before, after = luma[y, start - 1 : stop - 1], luma[y, start + 1 : stop + 1]
            tile_edges, tile_total, tile_squares = np.int32(0), np.int32(0), np.int32(0)
            for x in range(stop - start):
                up, down, left, right = np.int32(above[x]), np.int32(below[x]), np.int32(before[x]), np.int32(after[x])
                gx, gy = np.int32(right - left), np.int32(down - up)
                around = np.int32(np.int32(left + right) + np.int32(up + down))
                bend = np.int32(around - np.int32(np.int32(4) * np.int32(middle[x])))
                slope = np.int32(np.int32(gx * gx) + np.int32(gy * gy))
                tile_edges = np.int32(tile_edges + np.int32(slope >= limit))
                tile_total = np.int32(tile_total + bend)
                tile_squares = np.int32(tile_squares + np.int32(bend * bend))
            edges += int(tile_edges)
            total += int(tile_total)
            squares += int(tile_squares)
    return edges, total, squares


@numba.njit(nogil=True, cache=True)
def average_blocks(luma: NDArray[np.uint8], means: NDArray[np.float64]) -> None:
    """Average luma over a grid of ``BLOCKS x BLOCKS`` equal areas; a pixel on a border counts in proportion.

    Areas with fractional borders make the grid of a resized copy agree with that of the original.

    Args:
        luma: uint8 ``[H, W]``.
        means: float64 ``[BLOCKS, BLOCKS]``, filled with 0..255.
    """
    height, width = luma.shape
    strips = np.zeros((BLOCKS, width), np.float64)
    for y in range(height):
        low, high = y * BLOCKS / height, (y + 1) * BLOCKS / height
        row = luma[y]
        for block in range(int(low), min(int(np.ceil(high)), BLOCKS)):
            weight = min(high, block + 1.0) - max(low, float(block))
            strip = strips[block]
            for x in range(width):
                strip[x] += weight * row[x]
    means[:] = 0.0
    for x in range(width):
        low, high = x * BLOCKS / width, (x + 1) * BLOCKS / width
        for block in range(int(low), min(int(np.ceil(high)), BLOCKS)):
            weight = min(high, block + 1.0) - max(low, float(block))
            for y in range(BLOCKS):
                means[y, block] += weight * strips[y, x]


@numba.njit(nogil=True, cache=True)
def measure_picture(
    luma: NDArray[np.uint8],
    steep: int,
    levels: NDArray[np.int64],
    edges: NDArray[np.int64],
    blocks: NDArray[np.float64],
) -> None:
    """Fill all counts of one picture.

    Args:
        luma: uint8 ``[H, W]``.
        steep: see :func:`measure_edges`.
        levels: int64 ``[256]`` grey levels, filled.
        edges: int64, the first three filled by :func:`measure_edges`.
        blocks: float64 ``[BLOCKS, BLOCKS]``, filled by :func:`average_blocks`.
    """
    count_levels(luma, levels)
    edges[0], edges[1], edges[2] = measure_edges(luma, steep)
    average_blocks(luma, blocks)


@numba.njit(nogil=True, cache=True)
def find_runs(row: NDArray[np.unsignedinteger[Any]], changes: NDArray[np.uint8], starts: NDArray[np.int32]) -> int:
    """Cut a row into runs of one id.

    Changes are marked one byte a pixel (a vector operation), then searched eight at a time.

    Args:
        row: ``[W]``.
        changes: uint8, ``W`` rounded up to a multiple of 8, zeros from ``W - 1`` on; overwritten before that.
        starts: int32, at least ``W + 8``; receives the column at which each run starts, and ``W`` behind the last.

    Returns:
        The number of runs.
    """
    before, after = row[:-1], row[1:]
    for x in range(len(before)):
        changes[x] = np.uint8(before[x] != after[x])
    starts[0] = 0
    count = 1
    eights = changes.view(np.uint64)
    for eight in range(len(eights)):
        if eights[eight] != 0:
            for x in range(8 * eight, 8 * eight + 8):
                starts[count] = x + 1  # overwritten unless the id changes here: no branch to mispredict
                count += int(changes[x])
    starts[count] = len(row)
    return count


@numba.njit(nogil=True, cache=True)
def find_root(parents: NDArray[np.int32], part: int) -> int:
    """Find the component that a part was joined to, by path halving."""
    while parents[part] != part:
        parents[part] = parents[parents[part]]
        part = parents[part]
    return part


@numba.njit(nogil=True, cache=True)
def measure_label(
    ids: NDArray[np.unsignedinteger[Any]],
    factor: float,
    speck: float,
    small: float,
    by_class: NDArray[np.int64],
    by_area: NDArray[np.int64],
    borders: NDArray[np.int64],
) -> None:
    """Find the 8-connected components of every class, and the borders between classes.

    Components are joined with union-find run by run, where the usual two-pass labelling goes pixel by pixel
    (He, Chao and Suzuki, "A run-based two-scan labeling algorithm", 2008).

    Args:
        ids: ``[H, W]`` train ids; those of ``K`` and above are void and form no component.
        factor: area in network input of one label pixel.
        speck: components under this area (network pixels) are no objects.
        small: objects under this area (network pixels) are small.
        by_class: int64 ``[3, K]`` zeros, filled: pixels, small objects, pixels in small objects.
        by_area: int64 ``[AREA_BINS]`` zeros, filled: objects by ``floor(log2(area))``.
        borders: int64 ``[2]``, filled: 4-neighbour pairs of labelled pixels; those with different ids.
    """
    classes = by_class.shape[1]
    height, width = ids.shape
    changes = np.zeros((width + 7) // 8 * 8, np.uint8)
    starts, above_starts = np.empty(width + 8, np.int32), np.empty(width + 8, np.int32)
    parts, above_parts = np.empty(width, np.int32), np.empty(width, np.int32)
    parents, areas, owners = np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32)
    above_runs, count, pairs, different = 0, 0, 0, 0
    for y in range(height):
        row, above_row = ids[y], ids[max(y - 1, 0)]
        runs = find_runs(row, changes, starts)
        if count + runs > len(parents):
            parents, areas, owners = (
                _grow(parents, 2 * (count + runs)),
                _grow(areas, 2 * (count + runs)),
                _grow(owners, 2 * (count + runs)),
            )
        above, previous = 0, classes
        for run in range(runs):
            start, end = starts[run], starts[run + 1]
            label = int(row[start])
            beside = int(previous < classes)
            previous = label
            if label >= classes:
                continue
            while above < above_runs and above_starts[above + 1] < start:
                above += 1
            part, other = -1, above
            while other < above_runs and above_starts[other] <= end:
                label_above = np.int64(above_row[above_starts[other]])
                shared = max(min(end, above_starts[other + 1]) - max(start, above_starts[other]), 0)
                if label_above == label:
                    part = _join(parents, part, above_parts[other])
                    pairs += shared
                elif label_above < classes:
                    pairs += shared
                    different += shared
                other += 1
            if part < 0:
                part = count
                parents[part], owners[part], areas[part] = part, label, 0
                count += 1
            parts[run] = part
            areas[part] += end - start
            pairs += end - start - 1 + beside
            different += beside
        starts, above_starts, parts, above_parts, above_runs = above_starts, starts, above_parts, parts, runs
    borders[0], borders[1] = pairs, different
    _measure_parts(parents[:count], areas, owners, factor, speck, small, by_class, by_area)


@numba.njit(nogil=True, cache=True)
def _join(parents: NDArray[np.int32], part: int, other: int) -> int:
    """Join two parts of a component, the lower number becoming the parent; -1 is no part yet."""
    root = find_root(parents, other)
    if part < 0 or part == root:
        return root
    low, high = min(part, root), max(part, root)
    parents[high] = low
    return low


@numba.njit(nogil=True, cache=True)
def _grow(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Copy an array into a longer one."""
    longer = np.empty(length, array.dtype)
    longer[: len(array)] = array
    return longer


@numba.njit(nogil=True, cache=True)
def count_dark(
    ids: NDArray[np.unsignedinteger[Any]],
    luma: NDArray[np.uint8],
    shift: int,
    dark: int,
    by_class: NDArray[np.int64],
) -> None:
    """Count the luma pixels of each class in every second row and column, and the dark ones of those.

    Args:
        ids: ``[H, W]`` train ids; those of ``K`` and above are not counted.
        luma: uint8 ``[H >> shift, W >> shift]``; its pixel belongs to the label pixel in the middle of its block.
        shift: log2 of the factor that luma was reduced by.
        dark: luma below this is dark.
        by_class: int64 ``[2, K]``, filled: pixels, dark pixels.
    """
    height = luma.shape[0]
    classes = by_class.shape[1]
    counts = np.zeros((2, 2 * classes + 2), np.int32)  # two counters, so that neighbours do not wait for each other
    even, odd = counts[0], counts[1]
    step, middle = 2 << shift, (1 << shift) >> 1
    for y in range(0, height, 2):
        labels, row = ids[(y << shift) + middle, middle::step], luma[y, ::2]
        for x in range(0, len(row) - 1, 2):
            even[2 * min(np.int64(labels[x]), classes) + np.int64(row[x] < dark)] += 1
            odd[2 * min(np.int64(labels[x + 1]), classes) + np.int64(row[x + 1] < dark)] += 1
        if len(row) % 2:
            even[2 * min(np.int64(labels[len(row) - 1]), classes) + np.int64(row[-1] < dark)] += 1
    for label in range(classes):
        low = even[2 * label + 1] + odd[2 * label + 1]
        by_class[0, label] = even[2 * label] + odd[2 * label] + low
        by_class[1, label] = low


@numba.njit(nogil=True, cache=True)
def _measure_parts(
    parents: NDArray[np.int32],
    areas: NDArray[np.int64],
    owners: NDArray[np.int32],
    factor: float,
    speck: float,
    small: float,
    by_class: NDArray[np.int64],
    by_area: NDArray[np.int64],
) -> None:
    for part in range(len(parents) - 1, -1, -1):  # a parent has the lower number, so it has gathered all by its turn
        if parents[part] != part:
            areas[parents[part]] += areas[part]
            continue
        label, area = owners[part], areas[part] * factor
        by_class[0, label] += areas[part]
        if area >= speck:
            by_area[min(max(int(np.floor(np.log2(area))), 0), AREA_BINS - 1)] += 1
            if area < small:
                by_class[1, label] += 1
                by_class[2, label] += areas[part]
