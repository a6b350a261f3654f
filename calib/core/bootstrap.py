"""Paired bootstrap of IoU differences at data-set level, from images' counts.

What is drawn again and again is images (or groups of them), not pixels and not per-image scores: the IoU of a resample
is that of a data set made of the drawn images (Efron and Tibshirani, An Introduction to the Bootstrap, 1993, chapter
13). Both networks are scored on the same draws, so what images have in common cancels. A draw is a count for each
image; counts times images' counts is one matrix product for thousands of resamples.

The interval is the percentile interval with Hesterberg's correction for small samples ("expanded percentile", What
Teachers Should Know About the Bootstrap, The American Statistician 69, 2015, section 5.2): quantiles further out, by
``sqrt(n / (n - 1)) * t``, make up for the bootstrap's narrowness. Products and sums run in float64 on whole numbers
below 2**53, which is exact: no interval depends on the thread count or on the order of the images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.core.metrics import class_iou, mean_iou

Floats = NDArray[np.float64]
RESAMPLES = 2000
LEVEL = 0.95
FEWEST = 5
"""Fewest images (or groups) that hold a class, or a slice, for an interval: with fewer, no resampling can give one."""
CHUNK_CELLS = 1 << 22


@dataclass(frozen=True)
class Counts:
    """Right, labelled and predicted pixels of images, int64 ``[N, K]`` each."""

    right: NDArray[np.int64]
    labelled: NDArray[np.int64]
    predicted: NDArray[np.int64]

    def rows(self, mask: NDArray[np.bool_]) -> Counts:
        """Keep some images."""
        return Counts(self.right[mask], self.labelled[mask], self.predicted[mask])

    def grouped(self, groups: NDArray[np.int64]) -> Counts:
        """Sum the images of each group; ``groups`` numbers them from 0."""
        count = int(groups.max(initial=-1)) + 1

        def summed(values: NDArray[np.int64]) -> NDArray[np.int64]:
            total = np.zeros((count, values.shape[1]), np.int64)
            np.add.at(total, groups, values)
            return total

        return Counts(summed(self.right), summed(self.labelled), summed(self.predicted))

    def iou(self) -> Floats:
        """IoU of each class over all images, ``[K]``."""
        return class_iou(self.right.sum(axis=0), self.labelled.sum(axis=0), self.predicted.sum(axis=0))


@dataclass(frozen=True)
class Interval:
    """A value, its interval (None where there are too few images to tell) and its standard error, in one unit."""

    value: float
    low: float | None
    high: float | None
    error: float | None

    @property
    def significant(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.low is not None and self.high is not None and not self.low <= 0.0 <= self.high


@dataclass(frozen=True)
class Resampled:
    """Intervals of the mean IoU and of every class's; None for classes that the labels lack."""

    mean: Interval
    classes: tuple[Interval | None, ...]


def draw(units: int, resamples: int, seed: int) -> Iterator[Floats]:
    """Draw ``units`` out of ``units`` with replacement, ``resamples`` times: counts ``[chunk, units]``, in chunks."""
    rng = np.random.default_rng(seed)
    step = max(1, min(resamples, CHUNK_CELLS // max(units, 1)))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(0, units, (rows, units)) + units * np.arange(rows)[:, None]
        yield np.bincount(drawn.ravel(), minlength=rows * units).reshape(rows, units).astype(np.float64)


def resampled_iou(counts: Counts, resamples: int, seed: int) -> Floats:
    """IoU of each class in every resample, ``[resamples, K]``; the same draws for the same seed and image count."""
    if not len(counts.right):
        return np.full((1, counts.right.shape[1]), np.nan)
    stacked = np.concatenate([counts.right, counts.labelled, counts.predicted], axis=1).astype(np.float64)
    parts = []
    for drawn in draw(len(stacked), resamples, seed):
        right, labelled, predicted = np.split(drawn @ stacked, 3, axis=1)
        parts.append(class_iou(right, labelled, predicted))
    return np.concatenate(parts)


def intervals(values: Floats, mean: float, resampled: Floats, counts: Counts, level: float = LEVEL) -> Resampled:
    """Intervals from resampled values.

    Args:
        values: ``[K]`` on the data itself, NaN where the labels lack a class.
        mean: their mean.
        resampled: ``[resamples, K]``.
        counts: of the images (or groups) that were drawn from.
        level: share of cases in which the interval holds the true value.
    """
    holders = np.count_nonzero(counts.labelled > 0, axis=0)
    scored = int(np.count_nonzero(counts.labelled.sum(axis=1)))
    classes = tuple(
        None if math.isnan(value) else _interval(float(value), resampled[:, place], int(held), scored, level)
        for place, (value, held) in enumerate(zip(values, holders, strict=True))
    )
    return Resampled(mean_interval(mean, resampled, counts, level), classes)


def mean_interval(mean: float, resampled: Floats, counts: Counts, level: float = LEVEL) -> Interval:
    """Interval of the mean over classes alone; arguments as :func:`intervals`."""
    scored = int(np.count_nonzero(counts.labelled.sum(axis=1)))
    return _interval(mean, mean_iou(resampled), scored, scored, level)


def compare(reference: Counts, candidate: Counts, resamples: int, seed: int, level: float = LEVEL) -> Resampled:
    """Difference of two networks on the same images, candidate minus reference, in IoU points (0..100).

    Args:
        reference: images' counts under the reference.
        candidate: the same images' under the candidate.
        resamples: number of resamples.
        seed: of the draws.
        level: of the intervals.
    """
    before, after = reference.iou(), candidate.iou()
    drawn = 100 * (resampled_iou(candidate, resamples, seed) - resampled_iou(reference, resamples, seed))
    mean = 100 * float(mean_iou(after) - mean_iou(before))
    return intervals(100 * (after - before), mean, drawn, reference, level)


def images_to_see(interval: Interval, images: int, points: float = 0.1) -> int | None:
    """Images needed so that a true difference of ``points`` is significant in four of five data sets.

    Standard errors shrink with the square root of the images; ``(1.96 + 0.84)`` of them must fit into the difference
    (Cohen, Statistical Power Analysis, 1988: 5 % two-sided, power 0.8). None where no error is known.
    """
    if interval.error is None:
        return None
    return max(1, math.ceil(images * ((1.959964 + 0.841621) * interval.error / points) ** 2 - 1e-9))


def _interval(value: float, resampled: Floats, held: int, units: int, level: float) -> Interval:
    kept = resampled[~np.isnan(resampled)]
    if held < FEWEST or kept.size < resampled.size / 2:
        return Interval(value, None, None, None)
    tail = _tail(units, level)
    low, high = np.quantile(kept, [tail, 1 - tail])
    error = float(kept.std()) * math.sqrt(units / (units - 1))
    # the data itself lies inside, or a class held by few images could show an interval beside its own value
    return Interval(value, min(float(low), value), max(float(high), value), error)


def _tail(units: int, level: float) -> float:
    """Share of resamples to leave out on each side."""
    from scipy.special import ndtr, stdtrit

    wide = math.sqrt(units / (units - 1)) * float(stdtrit(units - 1, (1 + level) / 2))
    return float(ndtr(-wide))
