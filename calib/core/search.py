"""Threshold searches over a histogram of magnitudes: relative entropy, squared error, percentile.

Prefix sums make each candidate cost as many steps as there are quantization levels, whatever the number of bins:
the searches over 4096 candidates take milliseconds where the textbook loops take seconds.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled
from calib.types.statistics import TensorStatistics

LEVELS = 128
"""Magnitude levels of INT8: 0 to 127."""

NEAR = 1e-9
"""Candidates this close to the optimum, relatively, are computed again term by term to settle ties."""


def entropy_divergences(counts: NDArray[np.int64], levels: int = LEVELS, start: int = LEVELS) -> NDArray[np.float64]:
    """Relative entropy KL(P || Q) in nats of clipping behind the first ``i`` bins, for ``i = start .. bins``.

    P is the histogram's first ``i`` bins with the tail added to the last; Q is the first ``i`` bins merged into
    ``levels`` equal intervals and spread evenly over the bins of each that are not empty. Bin 0 counts as bin 1 does,
    so that exact zeros (behind a Relu) do not decide.

    Args:
        counts: int64 ``[bins]`` of magnitudes.
        levels: quantization levels.
        start: smallest candidate.

    Returns:
        float64 ``[bins - start + 1]``; infinite where Q is empty at a bin that P uses. Empty if ``start > bins``.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017; NVIDIA pytorch-quantization, ``calib/histogram.py``.
    """
    bins = _zero_as_neighbour(counts)
    if start > bins.size:
        return np.empty(0)
    return _divergences(bins.astype(np.float64), levels, start)


def equal_bins(statistics: TensorStatistics, bins: int = 2048) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cut ``[0, amax]`` into equal bins, as a histogram made with that range would have.

    Where new edges are edges of the source too, or lie in its tail, the counts are exact; elsewhere a source bin that
    straddles a new edge is divided in proportion, to whole counts.

    Args:
        statistics: of a tensor whose amax is not 0.
        bins: number of bins wanted.

    Returns:
        int64 ``[bins]`` counts, and bool ``[bins]``: whether the source leaves no doubt if the bin is empty.
    """
    counts, amax = statistics.magnitude, statistics.amax
    edges = np.minimum(np.arange(counts.size + 1) * statistics.bin_width, amax)
    cumulative = np.concatenate([[0], np.cumsum(counts)])
    wanted = np.arange(bins + 1) / bins * amax
    divided = np.rint(np.interp(wanted, edges, cumulative)).astype(np.int64)
    first_exact = _first_in_tail(statistics, wanted)
    beyond = statistics.tail.size - np.searchsorted(statistics.tail, wanted[first_exact:], "left")
    divided[first_exact:] = statistics.count - beyond
    divided[-1] = cumulative[-1]
    divided = np.minimum.accumulate(divided[::-1])[::-1]  # no edge holds more than the exact ones behind it
    certain = _occupied(cumulative, edges, wanted)
    certain[first_exact:] = True
    return np.diff(divided), certain


def _first_in_tail(statistics: TensorStatistics, wanted: NDArray[np.float64]) -> int:
    """First of the ascending edges from which on every value beyond is in the tail."""
    if statistics.tail.size >= statistics.count:
        return 0
    return int(np.searchsorted(wanted, statistics.tail[0], "right")) if statistics.tail.size else wanted.size


def _occupied(
    cumulative: NDArray[np.int64], edges: NDArray[np.float64], wanted: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Whether a source bin inside each new bin is occupied, or all that touch it are empty."""
    first_inside = np.searchsorted(edges, wanted[:-1], "left")
    last_inside = np.searchsorted(edges, wanted[1:], "right") - 1
    last_inside[-1] = edges.size - 1
    sure = cumulative[last_inside] - cumulative[np.minimum(first_inside, last_inside)]
    return np.asarray((sure > 0) | _nothing_near(cumulative, first_inside, last_inside))


def _nothing_near(
    cumulative: NDArray[np.int64], first: NDArray[np.int64], last: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether the source bins that touch each new bin are all empty."""
    outer = cumulative[np.minimum(last + 1, cumulative.size - 1)] - cumulative[np.maximum(first - 1, 0)]
    return np.asarray(outer == 0)


def entropy_bin(
    counts: NDArray[np.int64],
    levels: int = LEVELS,
    start: int = LEVELS,
    usable: NDArray[np.bool_] | None = None,
) -> tuple[int, float]:
    """Number of bins to keep so that the relative entropy is smallest, and that entropy in nats.

    Of equal minima the last is taken. Returns ``(bins, 0.0)`` when there is no candidate or none is finite.

    Args:
        counts: int64 ``[bins]`` of magnitudes.
        levels: quantization levels.
        start: smallest candidate.
        usable: bool ``[bins]``; a candidate whose last bin is not usable is passed over. None for all usable.
    """
    divergences = entropy_divergences(counts, levels, start)
    if usable is not None:
        divergences = np.where(usable[start - 1 :], divergences, np.inf)
    best = divergences.min(initial=np.inf)
    if not math.isfinite(best):
        return counts.size, 0.0
    bins = _zero_as_neighbour(counts).astype(np.float64)
    near = np.flatnonzero(divergences <= best + NEAR * max(best, 1.0)) + start
    exact = np.array([_divergence_term_by_term(bins, int(kept), levels) for kept in near])
    last = exact.size - 1 - int(np.argmin(exact[::-1]))
    return int(near[last]), float(exact[last])


def squared_errors(counts: NDArray[np.int64], levels: int = LEVELS, start: int = LEVELS) -> NDArray[np.float64]:
    """Mean squared quantization error of each clipping threshold, in squared bin widths.

    Candidate ``i`` clips at the centre of bin ``i``, quantizes the bin centres to multiples of
    ``centre / (levels - 1)``, rounding half to even, and weighs the squared errors by the counts.

    Args:
        counts: int64 ``[bins]`` of magnitudes.
        levels: quantization levels, including zero.
        start: smallest candidate bin.

    Returns:
        float64 ``[bins - start]``; empty if ``start >= bins``.

    Source: NVIDIA pytorch-quantization, ``calib/histogram.py`` (``_compute_amax_mse``).
    """
    if start >= counts.size:
        return np.empty(0)
    return _squared_errors(counts.astype(np.float64), levels, start) / max(int(counts.sum()), 1)


def squared_error_bin(counts: NDArray[np.int64], levels: int = LEVELS, start: int = LEVELS) -> tuple[int, float]:
    """Bin at whose centre clipping costs the least squared error, and that error in squared bin widths.

    Of equal minima the first is taken. Returns ``(bins - 1, 0.0)`` when there is no candidate.
    """
    errors = squared_errors(counts, levels, start)
    if not errors.size:
        return counts.size - 1, 0.0
    near = np.flatnonzero(errors <= errors.min() * (1 + NEAR)) + start
    exact = np.array([_squared_error_term_by_term(counts, int(bin_), levels) for bin_ in near])
    best = int(np.argmin(exact))
    return int(near[best]), float(exact[best])


def percentile_bin(counts: NDArray[np.int64], percentile: float) -> int:
    """First bin up to which at least ``percentile`` percent of the values lie.

    Shares are summed in float64 as the source does, so that where a share meets the percentile exactly the rounding,
    and with it the bin, is the same.

    Args:
        counts: int64 ``[bins]``, not all zero.
        percentile: 0..100.

    Source: NVIDIA pytorch-quantization, ``calib/histogram.py`` (``_compute_amax_percentile``).
    """
    shares = np.cumsum(counts / counts.sum())
    return min(int(np.searchsorted(shares, percentile / 100)), counts.size - 1)


def _zero_as_neighbour(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    bins = counts.copy()
    if bins.size > 1:
        bins[0] = bins[1]
    return bins


@compiled
def _divergences(bins: NDArray[np.float64], levels: int, start: int) -> NDArray[np.float64]:
    size = bins.size
    mass = np.zeros(size + 1)
    occupied = np.zeros(size + 1, np.int64)
    information = np.zeros(size + 1)
    for bin_ in range(size):
        amount = bins[bin_]
        mass[bin_ + 1] = mass[bin_] + amount
        occupied[bin_ + 1] = occupied[bin_] + (1 if amount > 0 else 0)
        information[bin_ + 1] = information[bin_] + (amount * math.log(amount) if amount > 0 else 0.0)
    result = np.full(size - start + 1, np.inf)
    total = mass[size]
    for kept in range(start, size + 1):
        tail = total - mass[kept]
        if mass[kept] == 0 or (bins[kept - 1] == 0 and tail > 0):
            continue
        cross = 0.0
        begin = 0
        for level in range(levels):
            end = ((level + 1) * kept + levels - 1) // levels
            inside = mass[end] - mass[begin]
            if inside > 0:
                share = math.log(inside / (occupied[end] - occupied[begin]))
                cross += inside * share
                if level == levels - 1:
                    cross += tail * share
            begin = end
        last = bins[kept - 1] + tail
        own = information[kept - 1] + (last * math.log(last) if last > 0 else 0.0)
        result[kept - start] = (own - cross) / total - math.log(total) + math.log(mass[kept])
    return result


def _divergence_term_by_term(bins: NDArray[np.float64], kept: int, levels: int) -> float:
    """The same divergence, every term computed and summed on its own."""
    head = bins[:kept]
    level = np.arange(kept) * levels // kept
    used = head > 0
    totals = np.bincount(level[used], head[used], levels)
    sizes = np.bincount(level[used], minlength=levels)
    coarse = np.where(used, totals[level] / np.maximum(sizes[level], 1), 0.0)
    fine = head.copy()
    fine[-1] += bins[kept:].sum()
    p, q = fine / fine.sum(), coarse / coarse.sum()
    mask = p > 0
    return float(np.sum(p[mask] * np.log(p[mask] / q[mask])))


@compiled
def _squared_errors(counts: NDArray[np.float64], levels: int, start: int) -> NDArray[np.float64]:
    size = counts.size
    mass, first, second = np.zeros(size + 1), np.zeros(size + 1), np.zeros(size + 1)
    for bin_ in range(size):
        centre = bin_ + 0.5
        mass[bin_ + 1] = mass[bin_] + counts[bin_]
        first[bin_ + 1] = first[bin_] + counts[bin_] * centre
        second[bin_ + 1] = second[bin_] + counts[bin_] * centre * centre
    result = np.empty(size - start)
    highest = levels - 1
    for candidate in range(start, size):
        step = (candidate + 0.5) / highest
        error = 0.0
        begin = 0
        for level in range(levels):
            end = size
            if level < highest:
                edge = (level + 0.5) * step - 0.5  # in bins; a centre on the edge goes to the even level
                end = math.floor(edge) + 1 if level % 2 == 0 else math.ceil(edge)
            value = level * step
            error += second[end] - second[begin] - 2 * value * (first[end] - first[begin])
            error += value * value * (mass[end] - mass[begin])
            begin = end
        result[candidate - start] = error
    return result


def _squared_error_term_by_term(counts: NDArray[np.int64], candidate: int, levels: int) -> float:
    """The same error, every term computed and summed on its own."""
    centres = np.arange(counts.size) + 0.5
    step = (candidate + 0.5) / (levels - 1)
    quantized = np.minimum(np.rint(centres / step), levels - 1) * step
    return float(np.sum((quantized - centres) ** 2 * counts) / counts.sum())
