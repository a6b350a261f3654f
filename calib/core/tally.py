"""The counts of one image under one network, laid out as one int64 vector.

Vectors of images add up to those of slices and of the data set, compress well (an image holds few classes), and are
all that metrics, slices and intervals need: no forward pass is repeated for a new question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.bootstrap import Counts
from calib.core.smallobjects import BANDS

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the parts of a vector, in order."""

    parts: tuple[tuple[str, Shape], ...]

    @cached_property
    def places(self) -> dict[str, tuple[slice, Shape]]:
        """Where each part lies."""
        found, start = {}, 0
        for name, shape in self.parts:
            length = int(np.prod(shape, dtype=np.int64))
            found[name] = (slice(start, start + length), shape)
            start += length
        return found

    @property
    def length(self) -> int:
        """Length of a vector."""
        return sum(int(np.prod(shape, dtype=np.int64)) for _, shape in self.parts)

    def view(self, vector: NDArray[Any], name: str) -> NDArray[Any]:
        """View a part of ``[..., length]`` as ``[..., *shape]``."""
        place, shape = self.places[name]
        return vector[..., place].reshape(*vector.shape[:-1], *shape)


def network_layout(classes: int) -> Layout:
    """Counts of an image under a network.

    ``confusion`` and ``dark`` are ``[K, K + 1]`` (see :mod:`calib.core.confusion`); ``boundary`` ``[2, K]``;
    ``flips`` ``[4]`` and ``flipped_class`` ``[K]``; ``found`` ``[2, bands, K]``; ``ties`` and ``lost`` pixels.
    """
    square = (classes, classes + 1)
    return Layout(
        (
            ("confusion", square),
            ("dark", square),
            ("boundary", (2, classes)),
            ("flips", (4,)),
            ("flipped_class", (classes,)),
            ("found", (2, len(BANDS), classes)),
            ("ties", (1,)),
            ("lost", (1,)),
        )
    )


def image_layout(classes: int) -> Layout:
    """Counts of an image that no network changes.

    ``size`` height and width of its label; ``pixels``: seen by the networks, cropped off, void, dark and scored, in
    the boundary band; ``band`` ``[K]`` labelled pixels in the band by class; ``objects`` ``[2, bands, K]``.
    """
    return Layout(
        (
            ("size", (2,)),
            ("pixels", (5,)),
            ("band", (classes,)),
            ("objects", (2, len(BANDS), classes)),
        )
    )


SEEN, CROPPED, VOID, DARK, BAND = range(5)
"""Slots of ``pixels``."""


@dataclass(frozen=True)
class Sparse:
    """A vector's non-zero cells: uint32 places, ascending, and int64 counts."""

    cells: NDArray[np.uint32]
    counts: NDArray[np.int64]


def to_sparse(vector: NDArray[np.int64]) -> Sparse:
    """Keep the non-zero cells of a vector."""
    cells = np.flatnonzero(vector)
    return Sparse(cells.astype(np.uint32), vector[cells])


def to_dense(sparse: Sparse, length: int) -> NDArray[np.int64]:
    """Fill a vector of ``length`` cells."""
    vector = np.zeros(length, np.int64)
    vector[sparse.cells] = sparse.counts
    return vector


@dataclass(frozen=True)
class Stack:
    """The vectors of many images, sparse, one behind the other.

    Attributes:
        start: int64 ``[N + 1]``, where each image's cells begin.
        cells: uint32, places of the non-zero counts.
        counts: int64, the counts.
    """

    start: NDArray[np.int64]
    cells: NDArray[np.uint32]
    counts: NDArray[np.int64]

    def __len__(self) -> int:
        """Count the images."""
        return len(self.start) - 1

    def image(self, row: int) -> Sparse:
        """The vector of one image."""
        place = slice(int(self.start[row]), int(self.start[row + 1]))
        return Sparse(self.cells[place], self.counts[place])

    @property
    def owners(self) -> NDArray[np.int64]:
        """Image of each cell."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))


def stack(vectors: Sequence[Sparse]) -> Stack:
    """Put vectors behind one another."""
    start = np.zeros(len(vectors) + 1, np.int64)
    np.cumsum([item.cells.size for item in vectors], out=start[1:])
    cells = [item.cells for item in vectors] or [np.empty(0, np.uint32)]
    counts = [item.counts for item in vectors] or [np.empty(0, np.int64)]
    return Stack(start, np.concatenate(cells), np.concatenate(counts))


def image_part(stacked: Stack, layout: Layout, name: str) -> NDArray[np.int64]:
    """Fill a part of every image, int64 ``[N, *shape]``; for parts that are small."""
    place, shape = layout.places[name]
    own = (stacked.cells >= place.start) & (stacked.cells < place.stop)
    length = place.stop - place.start
    filled = np.zeros(len(stacked) * length, np.int64)
    filled[stacked.owners[own] * length + (stacked.cells[own].astype(np.int64) - place.start)] = stacked.counts[own]
    return filled.reshape(len(stacked), *shape)


def matrix_counts(stacked: Stack, layout: Layout, name: str) -> Counts:
    """Right, labelled and predicted pixels of every image from its confusion matrix, never filling a matrix."""
    place, shape = layout.places[name]
    own = (stacked.cells >= place.start) & (stacked.cells < place.stop)
    owners, counts = stacked.owners[own], stacked.counts[own]
    label, guess = np.divmod(stacked.cells[own].astype(np.int64) - place.start, shape[1])
    known = guess < shape[0]

    def summed(kept: NDArray[np.bool_], classes: NDArray[np.int64]) -> NDArray[np.int64]:
        total = np.zeros(len(stacked) * shape[0], np.int64)
        np.add.at(total, owners[kept] * shape[0] + classes[kept], counts[kept])
        return total.reshape(len(stacked), shape[0])

    return Counts(summed(label == guess, label), summed(np.ones_like(known), label), summed(known, guess))


def total_part(stacked: Stack, layout: Layout, name: str) -> NDArray[np.int64]:
    """Sum a part over all images, int64 of its shape."""
    place, shape = layout.places[name]
    own = (stacked.cells >= place.start) & (stacked.cells < place.stop)
    total = np.zeros(place.stop - place.start, np.int64)
    np.add.at(total, stacked.cells[own].astype(np.int64) - place.start, stacked.counts[own])
    return total.reshape(shape)
