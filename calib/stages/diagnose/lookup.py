"""Find a tensor by its values among all tensors of a trace, without comparing each with each in full."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.stages.diagnose.trace import Trace

SAMPLES = 512
EXACT = 1e-4
"""Relative error up to which two tensors of unrelated names are one."""
PERMUTATIONS = ((0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (0, 1, 3, 2))
"""Orders of four axes that exporters change between."""


class Lookup:
    """The values of a trace by size and by samples at fixed places."""

    def __init__(self, trace: Trace) -> None:
        self._values = trace.values
        self._samples: dict[tuple[str, tuple[int, ...] | None], NDArray[np.float64]] = {}
        self._by_size: dict[int, list[str]] = {}
        for name, value in trace.values.items():
            self._by_size.setdefault(value.size, []).append(name)

    def near(self, value: NDArray[Any], name: str, tolerance: float) -> bool:
        """Whether a tensor may be this one, judged by samples."""
        if self._values[name].size != value.size:
            return False
        return self._error(value, name) <= 4 * tolerance

    def equal(self, value: NDArray[Any], taken: set[str]) -> Iterator[str]:
        """Tensors that look equal to one, those that are not taken first; constant ones tell nothing."""
        own = sample(value)
        if not own.size or not np.isfinite(own).all() or float(np.ptp(own)) == 0.0:
            return
        names = self._by_size.get(value.size, [])
        for name in sorted(names, key=lambda name: name in taken):
            if self._error(value, name) <= 4 * EXACT:
                yield name

    def perm(self, value: NDArray[Any], name: str) -> tuple[int, ...] | None:
        """Order in which the axes of a tensor of the trace become those of a value; None where they are the same."""
        other = self._values[name]
        if value.shape == other.shape or value.size != other.size or value.ndim != 4 or other.ndim != 4:
            return None
        fitting = [perm for perm in PERMUTATIONS if tuple(other.shape[axis] for axis in perm) == value.shape]
        if not fitting:
            return None
        return min(fitting, key=lambda perm: _relative(sample(value), sample(other.transpose(perm))))

    def _error(self, value: NDArray[Any], name: str) -> float:
        perm = self.perm(value, name)
        key = (name, perm)
        if key not in self._samples:
            other = self._values[name]
            self._samples[key] = sample(other if perm is None else other.transpose(perm))
        return _relative(sample(value), self._samples[key])


def sample(value: NDArray[Any]) -> NDArray[np.float64]:
    """Elements of a tensor at places that its size alone decides, float64."""
    if value.size <= SAMPLES:
        return np.asarray(value.reshape(-1), np.float64)
    places = np.random.default_rng(value.size).integers(0, value.size, SAMPLES)
    if value.flags.c_contiguous:
        return np.asarray(value.reshape(-1)[places], np.float64)
    return np.asarray(value[np.unravel_index(places, value.shape)], np.float64)


def _relative(own: NDArray[np.float64], wanted: NDArray[np.float64]) -> float:
    with np.errstate(all="ignore"):
        error = own - wanted
        same = (own == wanted) | (np.isnan(own) & np.isnan(wanted))
        error = np.where(same, 0.0, error)
        below = float(np.sqrt(np.mean(np.square(np.where(np.isfinite(wanted), wanted, 0.0))))) if wanted.size else 0.0
        above = float(np.sqrt(np.mean(np.square(error)))) if error.size else 0.0
    if above == 0.0:
        return 0.0
    return above / below if below and np.isfinite(above) else float("inf")


def arranged(value: NDArray[Any], perm: tuple[int, ...] | None, like: NDArray[Any] | None) -> NDArray[Any]:
    """A tensor of the reference in the candidate's arrangement and type.

    Args:
        value: the reference's tensor.
        perm: order of its axes, or None for its own.
        like: the candidate's tensor, or None where only the axes matter.
    """
    moved = value if perm is None else np.ascontiguousarray(value.transpose(perm))
    if like is None:
        return moved
    if moved.shape != like.shape and moved.size == like.size:
        moved = moved.reshape(like.shape)
    with np.errstate(over="ignore"):
        return moved.astype(like.dtype, copy=False)
