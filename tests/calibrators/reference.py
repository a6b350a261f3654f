"""Textbook calibration on a histogram, term by term in plain numpy and scipy; slow and without shortcuts.

Written from the description of NVIDIA pytorch-quantization's ``calib/histogram.py``: 2048 equal bins of ``|x|`` up to
the largest magnitude; candidates from 128 bins on.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy.stats import entropy as relative_entropy

Counts = NDArray[np.int64]
BINS = 2048
LEVELS = 128


def histogram(values: NDArray[np.float32], bins: int = BINS) -> tuple[Counts, NDArray[np.float64]]:
    """Counts and edges of ``|x|`` in equal bins from 0 to the largest."""
    magnitudes = np.abs(values.astype(np.float64)).ravel()
    counts, edges = np.histogram(magnitudes, bins, (0.0, magnitudes.max()))
    return counts.astype(np.int64), edges


def without_zeros(counts: Counts) -> NDArray[np.float64]:
    """The histogram whose bin 0 counts as bin 1 does."""
    return np.concatenate([counts[1:2], counts[1:]]).astype(np.float64)


def divergence(counts: Counts, kept: int, levels: int = LEVELS) -> float:
    """KL(P || Q) of keeping the first ``kept`` bins; NaN where Q is empty."""
    bins = without_zeros(counts)
    reference = bins[:kept].copy()
    reference[-1] += bins[kept:].sum()
    quantized = np.zeros(kept)
    edges = np.linspace(0, kept, levels + 1)
    level = np.digitize(np.arange(kept), edges) - 1
    for number in range(levels):
        inside = (level == number) & (bins[:kept] > 0)
        if inside.any():
            quantized[inside] = bins[:kept][inside].sum() / inside.sum()
    with np.errstate(invalid="ignore"):
        return float(relative_entropy(reference, quantized))


def divergences(counts: Counts, levels: int = LEVELS, start: int = LEVELS) -> NDArray[np.float64]:
    """:func:`divergence` of every candidate, each level's sum taken at once (whole numbers: the sums are exact)."""
    return np.array(list(_divergences(counts, levels, start)))


def _divergences(counts: Counts, levels: int, start: int) -> Iterator[float]:
    bins = without_zeros(counts)
    for kept in range(start, counts.size + 1):
        reference = bins[:kept].copy()
        reference[-1] += bins[kept:].sum()
        level = np.digitize(np.arange(kept), np.linspace(0, kept, levels + 1)) - 1
        used = bins[:kept] > 0
        sums, sizes = np.bincount(level[used], bins[:kept][used], levels), np.bincount(level[used], minlength=levels)
        quantized = np.where(used, (sums / np.maximum(sizes, 1))[level], 0.0)
        with np.errstate(invalid="ignore"):
            yield float(relative_entropy(reference, quantized))


def best_by_entropy(counts: Counts, levels: int = LEVELS, start: int = LEVELS) -> int:
    """Bins to keep: the last of the smallest divergences."""
    found = divergences(counts, levels, start)
    return start + found.size - 1 - int(np.argmin(found[::-1]))


def squared_error(counts: Counts, candidate: int, levels: int = LEVELS) -> float:
    """Mean squared error, in squared bin widths, of clipping at the centre of bin ``candidate``."""
    total = 0.0
    step = (candidate + 0.5) / (levels - 1)
    for bin_, amount in enumerate(counts):
        centre = bin_ + 0.5
        total += int(amount) * (min(round(centre / step), levels - 1) * step - centre) ** 2
    return total / int(counts.sum())


def squared_errors(counts: Counts, levels: int = LEVELS, start: int = LEVELS) -> NDArray[np.float64]:
    """:func:`squared_error` of every candidate."""
    centres = np.arange(counts.size) + 0.5
    found = []
    for candidate in range(start, counts.size):
        step = centres[candidate] / (levels - 1)
        quantized = np.clip(np.rint(centres / step), None, levels - 1) * step
        found.append(float(((quantized - centres) ** 2 * counts).sum() / counts.sum()))
    return np.array(found)


def best_by_squared_error(counts: Counts, levels: int = LEVELS, start: int = LEVELS) -> int:
    """Bin at whose centre to clip: the first of the smallest errors."""
    return start + int(np.argmin(squared_errors(counts, levels, start)))


def best_by_percentile(counts: Counts, percentile: float) -> int:
    """First bin at which the cumulative share reaches the percentile."""
    share = np.cumsum(counts / counts.sum())
    return min(int(np.searchsorted(share, percentile / 100)), counts.size - 1)


def samples(kind: str, size: int, seed: int) -> NDArray[np.float32]:
    """Activations of a kind that occurs in networks."""
    rng = np.random.default_rng(seed)
    normal = rng.standard_normal(size)
    made = {
        "laplace": lambda: rng.laplace(size=size),
        "half-normal": lambda: np.abs(normal),
        "relu": lambda: np.maximum(normal, 0),
        "bimodal": lambda: np.where(rng.random(size) < 0.3, 5 + 0.3 * normal, 0.4 * np.abs(normal)),
        "outlier": lambda: np.concatenate([normal[:-1], [100.0]]),
        "student": lambda: rng.standard_t(3, size),
        "sparse": lambda: np.where(rng.random(size) < 0.01, normal, 0.0),
        "few values": lambda: rng.choice([0.0, 0.25, 1.0, 1.5, 6.0], size, p=[0.4, 0.3, 0.2, 0.09, 0.01]),
        "high only": lambda: 3 + 0.2 * normal,
        "uniform": lambda: rng.random(size),
    }[kind]()
    return np.asarray(made, np.float32)


KINDS = ("laplace", "half-normal", "relu", "bimodal", "outlier", "student", "sparse", "few values", "uniform")
