"""The ``coverage`` sampler: greedy over classes x light x scale."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.parameters import Parameter
from calib.types.scores import ScoreTable, Selection
from samplers.picking import rank
from samplers.pool import DEFAULT_DISTANCE, Distance, Picks, select


def choose_coverage(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    bins: Annotated[int, Parameter("bins of equal size for light, and for the scale of each class", 1, 16)] = 4,
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Images that together show every class in every light and at every scale, the widest cover first."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        del source
        rows, gains = cover_greedily(make_cells(candidates, bins), wanted)
        notes = () if has_labels(candidates) else ("no labels: light x edge density are covered, classes are unknown",)
        return Picks(rows, gains, notes)

    return select("coverage", table, n, rng, rule, distance)


def make_cells(table: ScoreTable, bins: int) -> NDArray[np.int64]:
    """Number the cells (class, light, scale of the class in the image) that each image shows.

    Light is a quantile bin of mean luma; scale a quantile bin of the class's pixel share among the images that show
    it. Without labels there is one class, and scale is a bin of edge density.

    Returns:
        int64 ``[N, K]`` cell numbers, -1 where the class does not occur.
    """
    light = (rank(full_column(table, "luma_mean")) * bins).astype(np.int64)
    if not has_labels(table):
        return (light * bins + (rank(full_column(table, "edge_density")) * bins).astype(np.int64))[:, None]
    share = np.nan_to_num(np.asarray(table.columns["class_share"], np.float64))
    cells = np.full(share.shape, -1, np.int64)
    for number in range(share.shape[1]):
        shown = share[:, number] > 0
        scale = (rank(share[shown, number]) * bins).astype(np.int64)
        cells[shown, number] = (number * bins + light[shown]) * bins + scale
    return cells


def cover_greedily(cells: NDArray[np.int64], n: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Take the image with the largest gain each time; the k-th image of a cell gains ``1 / k``.

    The sum is submodular, so greedy reaches at least ``1 - 1/e`` of the best cover (Nemhauser, Wolsey and
    Fisher, 1978).

    Args:
        cells: int64 ``[N, K]``, -1 for none.
        n: images to take, at most N.

    Returns:
        rows and their gains, falling.
    """
    worth = np.ones(int(cells.max(initial=0)) + 2)
    worth[-1] = 0.0  # cell -1
    shown = np.zeros(len(worth))
    members = _list_members(cells)
    gain = worth[cells].sum(axis=1)
    rows, gains = np.empty(n, np.int64), np.empty(n)
    for number in range(n):
        best = int(np.argmax(gain))
        rows[number], gains[number] = best, gain[best]
        own = cells[best][cells[best] >= 0]
        shown[own] += 1
        worth[own] = 1 / (1 + shown[own])
        touched = np.concatenate([members[cell] for cell in own]) if len(own) else own
        touched = touched[np.isfinite(gain[touched])]
        gain[touched] = worth[cells[touched]].sum(axis=1)
        gain[best] = -np.inf
    return rows, gains


def _list_members(cells: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """List the images of each cell."""
    flat = cells.reshape(-1)
    order = np.argsort(flat, kind="stable")
    counts = np.bincount(flat[flat >= 0], minlength=int(cells.max(initial=0)) + 1)
    images = order[int((flat < 0).sum()) :] // cells.shape[1]
    return np.split(images, np.cumsum(counts)[:-1])
