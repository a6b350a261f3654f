"""Losses of units against the base network, with paired bootstrap intervals; one set of draws serves all units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from calib.core.bootstrap import CHUNK_CELLS, Counts, Interval, Resampled, draw, intervals, mean_interval, resampled_iou
from calib.core.metrics import class_iou, mean_iou

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Draws:
    """Resamples of ``units`` images (or groups).

    Attributes:
        units: how many are drawn from.
        resamples: how often.
        seed: of the draws.
    """

    units: int
    resamples: int
    seed: int

    def iou(self, counts: Counts) -> Floats:
        """IoU of each class in every resample, ``[resamples, K]``, as :func:`calib.core.bootstrap.resampled_iou`."""
        if self._weights is None:
            return resampled_iou(counts, self.resamples, self.seed)
        stacked = np.concatenate([counts.right, counts.labelled, counts.predicted], axis=1).astype(np.float64)
        return class_iou(*np.split(self._weights @ stacked, 3, axis=1))

    @cached_property
    def _weights(self) -> Floats | None:
        """How often each image is drawn; None where they are too many to keep."""
        if not self.units or self.units * self.resamples > CHUNK_CELLS:
            return None
        return np.concatenate(list(draw(self.units, self.resamples, self.seed)))


class Comparison:
    """Losses of several networks against one, on the same images.

    Args:
        base: images' counts under the base network; groups summed, where groups are drawn.
        draws: resamples of as many.
    """

    def __init__(self, base: Counts, draws: Draws) -> None:
        self._base, self._draws = base, draws
        self._iou = base.iou()
        self._drawn = draws.iou(base)

    def losses(self, other: Counts) -> Resampled:
        """Points that a network loses in the mean and in every class, positive where it is worse."""
        iou = other.iou()
        values = 100 * (self._iou - iou)
        drawn = 100 * (self._drawn - self._draws.iou(other))
        return intervals(values, self._mean(iou), drawn, self._base)

    def mean_loss(self, other: Counts) -> tuple[Interval, Floats]:
        """Points lost in the mean over classes, and the points lost in every class, ``[K]``."""
        iou = other.iou()
        drawn = 100 * (self._drawn - self._draws.iou(other))
        return mean_interval(self._mean(iou), drawn, self._base), 100 * (self._iou - iou)

    def _mean(self, iou: Floats) -> float:
        return 100 * float(mean_iou(self._iou) - mean_iou(iou))


def below(candidates: Sequence[Counts], leader: Counts, draws: Draws) -> list[bool | None]:
    """Tell of each network whether it loses less than a leader, beyond chance on the same images.

    Returns:
        None where there are too few images to tell.
    """
    comparison = Comparison(leader, draws)
    found: list[bool | None] = []
    for candidate in candidates:
        further = comparison.mean_loss(candidate)[0]
        found.append(None if further.high is None else further.high < 0)
    return found
