"""How far one tensor is from another: cosine, SQNR, largest error; and by how many pixels a map is shifted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHIFTS = 8
"""Largest shift looked for, in cells of the map."""
TRIED = 40_000
"""Elements that a shift by whole cells is judged by."""


@dataclass(frozen=True)
class Difference:
    """A tensor against the one it should be.

    Attributes:
        relative: root mean square of the error over that of the wanted tensor, >= 0; infinite where one holds a
            non-finite number that the other does not, or the shapes differ.
        cosine: of the two as vectors, -1..1; NaN where one is zero throughout.
        maximum: largest absolute error.
        elements: number of elements compared.
        non_finite: elements that are NaN or infinite here and finite there.
    """

    relative: float
    cosine: float
    maximum: float
    elements: int
    non_finite: int = 0

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio in decibels; infinite where both are equal."""
        if self.relative == 0:
            return math.inf
        return -math.inf if math.isinf(self.relative) else -20 * math.log10(self.relative)


NOTHING = Difference(0.0, 1.0, 0.0, 0)
APART = Difference(math.inf, math.nan, math.inf, 0)
"""Tensors that cannot be compared: other shapes, or one is missing."""


class Accumulator:
    """Adds up the differences of many arrays; memory does not grow with their number."""

    def __init__(self) -> None:
        self._error = self._wanted = self._own = self._product = 0.0
        self._maximum, self._elements, self._lost = 0.0, 0, 0
        self._apart = False

    def add(self, own: NDArray[Any], wanted: NDArray[Any]) -> None:
        """Add one pair of arrays; unequal shapes make the whole incomparable."""
        if own.shape != wanted.shape:
            self._apart = True
            return
        with np.errstate(invalid="ignore", over="ignore"):
            for one, other in zip(_blocks(own), _blocks(wanted), strict=True):
                self._add(one.astype(np.float64), other.astype(np.float64))

    def _add(self, own: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
        error = own - wanted
        square = _product(error, error)  # not BLAS: its threads cost more than the sum, and order its terms
        if not math.isfinite(square):
            self._add_finite(own, wanted)
            return
        self._error += square
        self._wanted += _product(wanted, wanted)
        self._own += _product(own, own)
        self._product += _product(own, wanted)
        self._maximum = max(self._maximum, float(error.max(initial=0.0)), -float(error.min(initial=0.0)))
        self._elements += own.size

    def _add_finite(self, own: NDArray[np.float64], wanted: NDArray[np.float64]) -> None:
        """Count what is not finite, and add the rest."""
        same = (own == wanted) | (np.isnan(own) & np.isnan(wanted))
        finite = np.isfinite(own) & np.isfinite(wanted)
        self._lost += int(np.count_nonzero(~finite & ~same))
        self._elements += int(np.count_nonzero(~finite))
        if finite.any():
            with np.errstate(over="ignore"):
                error = own[finite] - wanted[finite]
            if not math.isfinite(_product(error, error)):  # beyond the squares of float64
                self._lost += int(np.count_nonzero(finite))
                return
            self._add(own[finite], wanted[finite])

    def merge(self, other: Accumulator) -> None:
        """Add what another accumulator holds."""
        self._error += other._error
        self._wanted += other._wanted
        self._own += other._own
        self._product += other._product
        self._maximum = max(self._maximum, other._maximum)
        self._elements += other._elements
        self._lost += other._lost
        self._apart = self._apart or other._apart

    @property
    def difference(self) -> Difference:
        """What was added so far, as one difference."""
        if self._apart:
            return APART
        norm = math.sqrt(self._own) * math.sqrt(self._wanted)
        cosine = min(1.0, max(-1.0, self._product / norm)) if norm else math.nan
        if self._lost:
            return Difference(math.inf, cosine, math.inf, self._elements, self._lost)
        if self._error == 0:
            return Difference(0.0, cosine, 0.0, self._elements)
        relative = math.sqrt(self._error / self._wanted) if self._wanted else math.inf
        return Difference(relative, cosine, self._maximum, self._elements)


BLOCK = 1 << 15
"""Elements worked on at a time: what fits into a core's own cache."""


def _product(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    return float(np.add.reduce(one * other))


def _blocks(array: NDArray[Any]) -> list[NDArray[Any]]:
    flat = array.reshape(-1)
    return [flat[start : start + BLOCK] for start in range(0, flat.size, BLOCK)]


def difference(own: NDArray[Any] | None, wanted: NDArray[Any] | None) -> Difference:
    """Compare two arrays of any numeric type; :data:`APART` where one is missing or the shapes differ."""
    if own is None or wanted is None:
        return APART
    if own.dtype == wanted.dtype and np.array_equal(own, wanted):
        return Difference(0.0, 1.0, 0.0, own.size)
    total = Accumulator()
    total.add(own, wanted)
    return total.difference


@dataclass(frozen=True)
class Shift:
    """A displacement of one map against another.

    Attributes:
        rows: downwards, in cells of the map; fractions are possible.
        columns: to the right.
        explained: share of the squared error that moving the map back removes, 0..1.
    """

    rows: float
    columns: float
    explained: float


def spatial_shift(own: NDArray[Any], wanted: NDArray[Any]) -> Shift:
    """Estimate by how many cells a map ``[C, H, W]`` is shifted against the wanted one.

    Whole cells are tried by brute force up to :data:`SHIFTS`; the remainder comes from least squares on the map's
    gradient (Lucas and Kanade, IJCAI 1981), which a shift of a fraction of a cell follows to first order.
    """
    if own.shape != wanted.shape or own.ndim != 3 or min(own.shape[1:]) < 12:
        return Shift(0.0, 0.0, 0.0)
    ours, theirs = own.astype(np.float64), wanted.astype(np.float64)
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        return Shift(0.0, 0.0, 0.0)
    rows, columns = _whole_shift(ours, theirs)
    margin = max(abs(rows), abs(columns)) + 2
    inner = (slice(None), slice(margin, -margin), slice(margin, -margin))
    moved = np.roll(theirs, (rows, columns), axis=(1, 2))
    fine = _fine_shift(ours, moved, inner)
    before = float(((ours - theirs)[inner] ** 2).sum())
    explained = max(0.0, 1.0 - fine[2] / before) if before else 0.0
    return Shift(rows + fine[0], columns + fine[1], explained)


def _whole_shift(own: NDArray[np.float64], wanted: NDArray[np.float64]) -> tuple[int, int]:
    """The whole-cell shift with the least error over the part that both maps show."""
    most = min(SHIFTS, (min(own.shape[1:]) - 1) // 4)
    best, answer = math.inf, (0, 0)
    order = sorted(range(-most, most + 1), key=abs)
    step = max(1, own.size // TRIED)
    for rows in order:
        for columns in order:
            one, other = _overlap(own, rows, columns), _overlap(wanted, -rows, -columns)
            error = one[:, ::step] - other[:, ::step]
            score = float(np.mean(error * error))
            if score < best * (1 - 1e-9):
                best, answer = score, (rows, columns)
    return answer


def _overlap(array: NDArray[np.float64], rows: int, columns: int) -> NDArray[np.float64]:
    """The part of a map that is still there after it moved; negative moves cut the other side."""
    height, width = array.shape[1:]
    return array[:, max(rows, 0) : height + min(rows, 0), max(columns, 0) : width + min(columns, 0)]


def _fine_shift(
    own: NDArray[np.float64], wanted: NDArray[np.float64], inner: tuple[slice, slice, slice]
) -> tuple[float, float, float]:
    """Rows, columns and the squared error that is left, by least squares on the gradient away from the border."""
    # The mean of both maps' gradients: that of one alone sees only half of how the other bends.
    gradients = [np.gradient((own + wanted) / 2, axis=axis)[inner] for axis in (1, 2)]
    down, right = gradients
    error = (own - wanted)[inner]
    matrix = np.array([[(down * down).sum(), (down * right).sum()], [(down * right).sum(), (right * right).sum()]])
    target = -np.array([(down * error).sum(), (right * error).sum()])
    if abs(np.linalg.det(matrix)) < 1e-12 * max(float(matrix.max()), 1e-30) ** 2:
        return 0.0, 0.0, float((error * error).sum())
    rows, columns = np.linalg.solve(matrix, target)
    left = error + rows * down + columns * right
    return float(rows), float(columns), float((left * left).sum())
