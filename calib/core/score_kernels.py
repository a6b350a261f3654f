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
def count_levels(luma: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Count grey levels of uint8 ``[H, W]`` luma; int64 ``[256]``."""
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
    return counts.sum(axis=0)


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
            edges += tile_edges
            total += tile_total
            squares += tile_squares
    return edges, total, squares


@numba.njit(nogil=True, cache=True)
def block_means(luma: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Average luma over a grid of ``BLOCKS x BLOCKS`` equal areas; a pixel on a border counts in proportion.

    Areas with fractional borders make the grid of a resized copy agree with that of the original.

    Args:
        luma: uint8 ``[H, W]``.

    Returns:
        float64 ``[BLOCKS, BLOCKS]``, 0..255.
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
    means = np.zeros((BLOCKS, BLOCKS), np.float64)
    for x in range(width):
        low, high = x * BLOCKS / width, (x + 1) * BLOCKS / width
        for block in range(int(low), min(int(np.ceil(high)), BLOCKS)):
            weight = min(high, block + 1.0) - max(low, float(block))
            for y in range(BLOCKS):
                means[y, block] += weight * strips[y, x]
    return means


@numba.njit(nogil=True, cache=True)
def find_runs(ids: NDArray[np.integer[Any]], starts: NDArray[np.int32], first: NDArray[np.int64]) -> int:
    """Cut every row into runs of one id.

    Changes are marked one byte a pixel (a vector operation), then searched eight at a time.

    Args:
        ids: ``[H, W]``.
        starts: int32, at least ``H * W + 8``; receives the column at which each run starts.
        first: int64 ``[H + 1]``; receives the number of the first run of each row, and the total.

    Returns:
        The number of runs.
    """
    height, width = ids.shape
    changes = np.zeros((width + 7) // 8 * 8, np.uint8)
    eights = changes.view(np.uint64)
    count = 0
    for y in range(height):
        before, after = ids[y, :-1], ids[y, 1:]
        for x in range(width - 1):
            changes[x] = np.uint8(before[x] != after[x])
        first[y] = count
        starts[count] = 0
        count += 1
        for eight in range(len(eights)):
            if eights[eight] != 0:
                for x in range(8 * eight, 8 * eight + 8):
                    starts[count] = x + 1  # overwritten unless the id changes here: no branch to mispredict
                    count += np.int64(changes[x])
    first[height] = count
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
    ids: NDArray[np.integer[Any]],
    classes: int,
    factor: float,
    speck: float,
    small: float,
    luma: NDArray[np.uint8],
    dark: int,
    shift: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64], int, int]:
    """Find the 8-connected components of every class, and the borders between classes.

    Components are joined with union-find run by run, where the usual two-pass labelling goes pixel by pixel
    (He, Chao and Suzuki, "A run-based two-scan labeling algorithm", 2008).

    Args:
        ids: ``[H, W]`` train ids; ids of ``classes`` and above are void and form no component.
        classes: number of classes.
        factor: area in network input of one label pixel.
        speck: components under this area (network pixels) are no objects.
        small: objects under this area (network pixels) are small.
        luma: uint8 ``[H >> shift, W >> shift]``; its pixel belongs to the label pixel in the middle of its block.
        dark: luma below this is dark.
        shift: log2 of the factor that luma was reduced by.

    Returns:
        int64 ``[5, classes]``: pixels, small objects, pixels in small objects; pixels of luma, dark ones of those;
        int64 ``[AREA_BINS]``: objects by ``floor(log2(area))``;
        number of 4-neighbour pairs of labelled pixels; number of those with different ids.
    """
    height, width = ids.shape
    starts = np.empty(height * width + 8, np.int32)
    first = np.empty(height + 1, np.int64)
    total = find_runs(ids, starts, first)
    ends, labels, parts = np.empty(total, np.int32), np.empty(total, np.int32), np.empty(total, np.int32)
    parents, areas, owners = np.empty(total, np.int32), np.zeros(total, np.int64), np.empty(total, np.int32)
    by_class = np.zeros((5, classes), np.int64)
    below = np.zeros(luma.shape[1] + 1, np.int32)
    middle = (1 << shift) >> 1
    ahead = (1 << shift) - 1 - middle
    count, pairs, borders = 0, 0, 0
    for y in range(height):
        lit = (y & ((1 << shift) - 1)) == middle and (y >> shift) < luma.shape[0]
        if lit:
            _sum_dark(luma[y >> shift], dark, below)
        above, above_end = (first[y - 1], first[y]) if y else (0, 0)
        previous = np.int32(classes)
        for run in range(first[y], first[y + 1]):
            start = starts[run]
            end = starts[run + 1] if run + 1 < first[y + 1] else width
            label = np.int32(ids[y, start])
            ends[run], labels[run] = end, label
            if lit and label < classes:
                left, right = min((start + ahead) >> shift, luma.shape[1]), min((end + ahead) >> shift, luma.shape[1])
                by_class[3, label] += right - left
                by_class[4, label] += below[right] - below[left]
            if label >= classes:
                previous = label
                continue
            beside = np.int64(previous < classes)
            pairs += end - start - 1 + beside
            borders += beside
            previous = label
            while above < above_end and ends[above] < start:
                above += 1
            other, part = above, -1
            while other < above_end and starts[other] <= end:
                shared = max(min(end, ends[other]) - max(start, starts[other]), 0)
                if labels[other] == label:
                    root = find_root(parents, parts[other])
                    if part < 0:
                        part = root
                    elif root != part:
                        parents[max(part, root)] = min(part, root)
                        part = min(part, root)
                elif labels[other] < classes:
                    borders += shared
                else:
                    shared = 0
                pairs += shared
                other += 1
            if part < 0:
                part = count
                parents[part], owners[part] = part, label
                count += 1
            parts[run] = part
            areas[part] += end - start
    by_area = _measure_parts(parents[:count], areas, owners, factor, speck, small, by_class)
    return by_class, by_area, pairs, borders


@numba.njit(nogil=True, cache=True)
def _measure_parts(
    parents: NDArray[np.int32],
    areas: NDArray[np.int64],
    owners: NDArray[np.int32],
    factor: float,
    speck: float,
    small: float,
    by_class: NDArray[np.int64],
) -> NDArray[np.int64]:
    by_area = np.zeros(AREA_BINS, np.int64)
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
    return by_area


@numba.njit(nogil=True, cache=True)
def _sum_dark(row: NDArray[np.uint8], dark: int, below: NDArray[np.int32]) -> None:
    """Fill ``below[x]`` with the number of dark pixels left of column ``x``."""
    low = np.int32(0)
    for x in range(len(row)):
        low = np.int32(low + np.int32(row[x] < dark))
        below[x + 1] = low
