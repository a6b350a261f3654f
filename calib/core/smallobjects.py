"""Recall of objects by size: what a mean over pixels cannot show, because small objects have few of them.

An object is an 8-connected component of one class in the label. Its size is counted in pixels of network input, for
that is what the network sees of it; parts below ``SPECK`` such pixels are label noise, no objects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled, compiled_helper

EDGES = (64.0, 256.0, 1024.0, 9216.0)
"""Areas between the size bands, in pixels of network input: squares of 8, 16, 32 and 96 pixels a side. The last two
bound COCO's small and medium objects."""
BANDS = ("under 8²", "8² to 16²", "16² to 32²", "32² to 96²", "96² and more")
SMALL_BANDS = 3
"""The first bands, up to 32² pixels, are the small objects."""
SPECK = 4.0
FOUND = 0.5
"""An object counts as found when at least this share of its pixels has the right class."""


@dataclass(frozen=True)
class Objects:
    """The objects of one label.

    Attributes:
        map: int32 ``[H, W]`` number of each pixel's component, -1 for void.
        owner: int64 ``[n]`` class of each component.
        area: int64 ``[n]`` pixels of each component.
        band: int64 ``[n]`` size band of each, -1 for specks.
    """

    map: NDArray[np.int32]
    owner: NDArray[np.int64]
    area: NDArray[np.int64]
    band: NDArray[np.int64]


def find_objects(label: NDArray[Any], classes: int, factor: float) -> Objects:
    """Find the objects of a label.

    Args:
        label: unsigned ``[H, W]`` train ids; ``classes`` and above is void.
        classes: number of classes.
        factor: area in network input of one label pixel.
    """
    parts = np.empty(label.shape, np.int32)
    parents = np.empty(label.size, np.int32)
    count = _label_parts(label, classes, parts, parents)
    owner, area = np.zeros(count, np.int64), np.zeros(count, np.int64)
    _measure(label, parts, owner, area)
    sizes = area * factor
    band = np.where(sizes >= SPECK, np.searchsorted(EDGES, sizes, side="right"), -1)
    return Objects(parts, owner, area, band)


def count_objects(objects: Objects, classes: int) -> NDArray[np.int64]:
    """Count objects and their pixels, int64 ``[2, bands, K]``."""
    return _by_band(objects, classes, np.ones_like(objects.area), objects.area)


def count_found(objects: Objects, right: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Count found objects, and the right pixels in all objects, int64 ``[2, bands, K]``.

    Args:
        objects: of the label.
        right: int64 ``[n]`` right pixels of each component, from :func:`calib.core.confusion.count_pixels`.
        classes: number of classes.
    """
    return _by_band(objects, classes, right >= FOUND * objects.area, right)


def _by_band(objects: Objects, classes: int, first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.int64]:
    kept = objects.band >= 0
    cells = objects.band[kept] * classes + objects.owner[kept]
    length = len(BANDS) * classes
    sums = [np.bincount(cells, weights=values[kept], minlength=length) for values in (first, second)]
    return np.asarray(sums).astype(np.int64).reshape(2, len(BANDS), classes)


@compiled_helper
def _root(parents: Any, part: int) -> int:
    while parents[part] != part:
        parents[part] = parents[parents[part]]
        part = parents[part]
    return part


@compiled_helper
def _join(parents: Any, part: int, other: int) -> int:
    """Join two parts under the lower number; -1 is no part yet."""
    root = _root(parents, other)
    if part < 0 or part == root:
        return root
    low, high = min(part, root), max(part, root)
    parents[high] = low
    return low


@compiled
def _label_parts(label: Any, classes: int, parts: Any, parents: Any) -> int:
    """Number the components of all classes at once: two scans with union-find; returns their number."""
    height, width = label.shape
    count = 0
    for y in range(height):
        row, above = label[y], label[max(y - 1, 0)]
        numbers, upper = parts[y], parts[max(y - 1, 0)]
        for x in range(width):
            own = row[x]
            if own >= classes:
                numbers[x] = -1
                continue
            if y > 0 and above[x] == own:  # all other neighbours of that class touch this one
                numbers[x] = upper[x]
                continue
            part = -1
            if x > 0 and row[x - 1] == own:
                part = _root(parents, numbers[x - 1])
            elif y > 0 and x > 0 and above[x - 1] == own:
                part = _root(parents, upper[x - 1])
            if y > 0 and x + 1 < width and above[x + 1] == own:
                part = _join(parents, part, upper[x + 1])
            if part < 0:
                part = count
                parents[count] = count
                count += 1
            numbers[x] = part
    return _compact(parts, parents, count)


@compiled_helper
def _compact(parts: Any, parents: Any, count: int) -> int:
    """Give every component one number, in the order of its first pixel."""
    final = np.empty(count, np.int32)
    kept = 0
    for part in range(count):  # a parent has the lower number, so it has its final one by now
        if parents[part] == part:
            final[part] = kept
            kept += 1
        else:
            final[part] = final[_root(parents, part)]
    flat = parts.ravel()
    for index in range(flat.size):
        if flat[index] >= 0:
            flat[index] = final[flat[index]]
    return kept


@compiled
def _measure(label: Any, parts: Any, owner: Any, area: Any) -> None:
    ids, numbers = label.ravel(), parts.ravel()
    for index in range(ids.size):
        if numbers[index] >= 0:
            owner[numbers[index]] = ids[index]
            area[numbers[index]] += 1
