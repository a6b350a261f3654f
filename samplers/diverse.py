"""The ``diverse`` sampler: k-means on the scores, the image nearest to each centre."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.scores import ScoreTable, Selection
from samplers.picking import spread
from samplers.pool import DEFAULT_DISTANCE, Distance, Picks, select

SCALARS = ("luma_mean", "dark_share", "bright_share", "contrast", "edge_density", "boundary_density", "small_share")
MOST_POINTS = 20_000
"""More candidates are first thinned out evenly; k-means on them would take minutes."""


def choose_diverse(
    table: ScoreTable, n: int, rng: np.random.Generator, distance: Distance = DEFAULT_DISTANCE
) -> Selection:
    """One image from each of n clusters of the scores (k-means on one thread), largest clusters first."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        rows = np.arange(len(candidates))
        if len(candidates) > max(MOST_POINTS, 4 * wanted):
            rows = np.sort(spread(candidates, max(MOST_POINTS, 4 * wanted), source).rows)
        picked, sizes = cluster_centres(make_features(candidates)[rows], wanted, int(source.integers(2**31)))
        return Picks(rows[picked], sizes / len(rows))

    return select("diverse", table, n, rng, rule, distance)


def make_features(table: ScoreTable) -> NDArray[np.float64]:
    """Standardise the scores, float64 ``[N, F]``; class shares enter by their square roots and count as one score.

    Square roots make Euclidean distances of class shares Hellinger distances, so that rare classes count.
    """
    columns = [full_column(table, name) for name in SCALARS]
    columns.append(np.log1p(full_column(table, "sharpness")))
    scalars = np.stack(columns, axis=1)
    scalars = (scalars - scalars.mean(axis=0)) / np.maximum(scalars.std(axis=0), 1e-9)
    if not has_labels(table):
        return np.asarray(np.round(scalars, 6))
    shares = np.sqrt(np.nan_to_num(np.asarray(table.columns["class_share"], np.float64)))
    spreading = np.sqrt(shares.var(axis=0).sum())
    return np.round(np.hstack([scalars, (shares - shares.mean(axis=0)) / max(spreading, 1e-9)]), 6)


def cluster_centres(features: NDArray[np.float64], n: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pick the point nearest to the centre of each of ``n`` clusters; where points coincide, further ones fill up.

    Args:
        features: float64 ``[N, F]``.
        n: points wanted, at most N.
        seed: of k-means++.

    Returns:
        int64 ``[n]`` points, and the size of each one's cluster, largest first.
    """
    clusters = min(n, len(np.unique(features, axis=0)))
    labels, distances = _k_means(features, clusters, seed)
    sizes = np.bincount(labels, minlength=clusters)
    picked: list[int] = []
    for cluster in np.argsort(-sizes, kind="stable"):
        members = np.flatnonzero(labels == cluster)
        if len(members):
            picked.append(int(members[np.argmin(distances[members])]))
    free = np.ones(len(features), bool)
    free[picked] = False
    picked += [int(row) for row in np.flatnonzero(free)[: n - len(picked)]]
    rows = np.array(picked[:n], np.int64)
    return rows, sizes[labels[rows]].astype(np.float64)


def _k_means(features: NDArray[np.float64], clusters: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Assign points to clusters; one thread, so that sums are taken in one order."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KMeans(clusters, n_init=1, random_state=seed, max_iter=100).fit(features)
    gaps = features - model.cluster_centers_[model.labels_]
    return np.asarray(model.labels_, np.int64), np.round((gaps**2).sum(axis=1), 9)
