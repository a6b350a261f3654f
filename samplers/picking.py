"""Ways to pick rows: spread evenly over the population, best first with variety, and both interleaved."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.scores import ScoreTable
from samplers.pool import Picks

GOLDEN = (5**0.5 - 1) / 2
CURVE_BITS = 8
ALIKE_BITS = 16
"""Hashes this many bits apart and more are not alike at all; unrelated pictures differ in about 32 bits."""
SCORE_FLOOR = 0.8
LIKENESS_WEIGHT = 2.0
"""At half likeness a picture comes after every unlike one of the pool."""


def rank(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Rank values from 0 (smallest) up to below 1; equal values get the same, middle rank."""
    ordered = np.sort(values)
    low, high = np.searchsorted(ordered, values, "left"), np.searchsorted(ordered, values, "right")
    return np.asarray((low + high - 1) / 2 / max(len(values), 1))


def best_first(scores: NDArray[np.float64]) -> NDArray[np.int64]:
    """Order rows by falling score, ties by row."""
    return np.asarray(np.argsort(-scores, kind="stable"), np.int64)


def spread(table: ScoreTable, n: int, rng: np.random.Generator, among: NDArray[np.bool_] | None = None) -> Picks:
    """Pick rows that represent the population.

    Images are ordered along a Hilbert curve over the ranks of light (mean luma) and detail (share of small objects,
    without labels edge density). The golden-ratio sequence (a low-discrepancy sequence) from a random start picks
    along the curve, each time the nearest free image onward. So any first part of the answer is spread evenly too.

    Args:
        table: scores.
        n: rows wanted, at most as many as there are.
        rng: draws the start.
        among: bool ``[N]``, the rows to pick from; all by default.

    Returns:
        rows in the order picked; scores fall from 1 with the order.
    """
    start = rng.random()
    rows = np.arange(len(table)) if among is None else np.flatnonzero(among)
    detail = full_column(table, "small_share" if has_labels(table) else "edge_density")
    curve = hilbert(rank(full_column(table, "luma_mean")[rows]), rank(detail[rows]))
    line = rows[np.argsort(curve, kind="stable")]
    following = np.arange(len(line) + 1)
    picked = np.empty(min(n, len(line)), np.int64)
    for number in range(len(picked)):
        place = _next_free(following, int((start + number * GOLDEN) % 1.0 * len(line)))
        if place == len(line):
            place = _next_free(following, 0)
        following[place] = place + 1
        picked[number] = line[place]
    return Picks(picked, 1 - np.arange(len(picked)) / max(len(picked), 1))


def _next_free(following: NDArray[np.int64], place: int) -> int:
    while following[place] != place:
        following[place] = following[following[place]]
        place = int(following[place])
    return place


def hilbert(x: NDArray[np.float64], y: NDArray[np.float64]) -> NDArray[np.int64]:
    """Position along the Hilbert curve of points in the unit square (Hilbert 1891; the usual bitwise conversion).

    Args:
        x: float64 ``[N]``, 0 to below 1.
        y: float64 ``[N]``, 0 to below 1.
    """
    side = 1 << CURVE_BITS
    column, row = (x * side).astype(np.int64), (y * side).astype(np.int64)
    position = np.zeros(len(x), np.int64)
    half = side >> 1
    while half:
        right, lower = (column & half) > 0, (row & half) > 0
        position += half * half * ((3 * right) ^ lower)
        mirrored = ~lower & right
        column, row = np.where(mirrored, side - 1 - column, column), np.where(mirrored, side - 1 - row, row)
        column, row = np.where(lower, column, row), np.where(lower, row, column)
        half >>= 1
    return position


def pick_best(
    table: ScoreTable,
    scores: NDArray[np.float64],
    n: int,
    diversity: float,
    passing: NDArray[np.bool_] | None = None,
) -> NDArray[np.int64]:
    """Pick high scores, yet pictures that differ.

    Variety is bought within bounds: never outside the best ``(1 + diversity) * n``, never below ``SCORE_FLOOR`` of
    the n-th best score, and never a picture that fails a verdict in place of one that passes.

    Greedy: each step takes the lowest ``rank / pool + LIKENESS_WEIGHT * likeness``, where likeness falls from 1 (same
    hash) to 0 (``ALIKE_BITS`` bits apart) and is taken to the most alike picture chosen so far. A burst of video
    frames is so thinned out in favour of other images that score nearly as high.

    Args:
        table: scores, for the hashes.
        scores: float64 ``[N]``, higher is better.
        n: rows wanted.
        diversity: 0 takes the best as they come.
        passing: bool ``[N]``, the pictures that pass the sampler's verdict (such as dark); all by default.
    """
    if passing is None:
        return _pick_varied(table, scores, np.arange(len(table)), n, diversity)
    sure, others = np.flatnonzero(passing), np.flatnonzero(~passing)
    first = _pick_varied(table, scores, sure, min(n, len(sure)), diversity)
    rest = _pick_varied(table, scores, others, n - len(first), diversity)
    return np.concatenate([first, rest])


def _pick_varied(
    table: ScoreTable, scores: NDArray[np.float64], among: NDArray[np.int64], n: int, diversity: float
) -> NDArray[np.int64]:
    pool = among[best_first(scores[among])][: int(np.ceil(n * (1 + diversity)))]
    if n < len(pool):
        pool = pool[(np.arange(len(pool)) < n) | (scores[pool] >= SCORE_FLOOR * scores[pool[n - 1]])]
    if "phash" not in table.columns or n == 0 or len(pool) <= n:
        return np.asarray(pool[:n], np.int64)
    hashes = np.asarray(table.columns["phash"])[pool]
    cost = np.arange(len(pool)) / len(pool)
    likeness = np.zeros(len(pool))
    picked = np.empty(n, np.int64)
    for number in range(n):
        best = int(np.argmin(cost + LIKENESS_WEIGHT * likeness))
        picked[number], cost[best] = pool[best], np.inf
        apart = np.bitwise_count(hashes ^ hashes[best])
        likeness = np.maximum(likeness, np.maximum(0.0, 1 - apart / ALIKE_BITS))
    return picked


def enrich(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    scores: NDArray[np.float64],
    fraction: float,
    diversity: float,
    passing: NDArray[np.bool_] | None = None,
) -> Picks:
    """Pick ``fraction * n`` rows (rounded) by score and the rest to represent the population, evenly interleaved.

    Args:
        table: scores.
        n: rows wanted.
        rng: random source.
        scores: float64 ``[N]``, higher is more wanted.
        fraction: share that is enriched, 0..1.
        diversity: see :func:`pick_best`.
        passing: see :func:`pick_best`.
    """
    quota = enriched_size(n, fraction)
    top = pick_best(table, scores, quota, diversity, passing)
    others = np.ones(len(table), bool)
    others[top] = False
    rest = spread(table, n - quota, rng, others).rows
    turn = np.concatenate([(np.arange(len(part)) + 0.5) / max(len(part), 1) for part in (top, rest)])
    rows = np.concatenate([top, rest])[np.argsort(turn, kind="stable")]
    return Picks(rows, scores[rows])


def enriched_size(n: int, fraction: float) -> int:
    """Count the enriched images of ``n``, rounded half up."""
    return min(int(n * fraction + 0.5), n)


def share_out(weights: NDArray[Any], n: int) -> NDArray[np.int64]:
    """Split ``n`` in proportion to weights, exactly (largest remainders, ties to the first).

    Args:
        weights: ``[G]``, not negative, some above zero.
        n: total.
    """
    ideal = np.asarray(weights, np.float64) / np.sum(weights) * n
    parts = np.asarray(np.floor(ideal + 1e-9), np.int64)
    parts[np.argsort(parts - ideal, kind="stable")[: n - int(parts.sum())]] += 1
    return parts
