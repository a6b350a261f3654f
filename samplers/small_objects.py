"""The ``small-objects`` sampler: images with many small objects of the classes that are typically small."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.scores import ScoreTable, Selection
from samplers.picking import enrich, enriched_size
from samplers.pool import (
    DEFAULT_DISTANCE,
    DEFAULT_DIVERSITY,
    DEFAULT_FRACTION,
    Distance,
    Diversity,
    Fraction,
    Picks,
    select,
)


def choose_small_objects(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    fraction: Fraction = DEFAULT_FRACTION,
    diversity: Diversity = DEFAULT_DIVERSITY,
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Images with many small objects, by number and pixels; without labels, images with fine detail."""
    whole = table

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        scores, notes = smallness(candidates, class_weights(whole))
        found = int((full_column(candidates, "small_count") > 0).sum())
        quota = enriched_size(wanted, fraction)
        if has_labels(candidates) and found < quota:
            limit = table.thresholds.get("small_area", 1024)
            notes += (f"{found} images with small objects found (under {limit:g} pixels of input), {quota} wanted",)
        picks = enrich(candidates, wanted, source, scores, fraction, diversity, scores > 0)
        return Picks(picks.rows, picks.scores, notes)

    return select("small-objects", table, n, rng, rule, distance)


def class_weights(table: ScoreTable) -> NDArray[np.float64]:
    """Weigh each class by how typically small it is: the share of its pixels that lie in small objects, 0..1.

    A sliver of sky between trees is a small component too, yet hardly any sky lies in such, so it weighs little.

    Returns:
        float64 ``[K]``, 0 for a class that never occurs.
    """
    small = np.nansum(np.asarray(table.columns["class_small_share"], np.float64), axis=0) if has_labels(table) else 0.0
    whole = np.nansum(np.asarray(table.columns["class_share"], np.float64), axis=0) if has_labels(table) else 1.0
    return np.asarray(small / np.maximum(whole, 1e-12))


def smallness(table: ScoreTable, weights: NDArray[np.float64]) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Score small objects: the mean of their weighted number and pixel share, each in units of the average image.

    Returns:
        float64 ``[N]`` (1 is average, 0 none); a note when edge density had to stand in for labels.
    """
    if not has_labels(table):
        return full_column(table, "edge_density"), ("no labels: edge density stands for small objects",)
    number = np.nan_to_num(np.asarray(table.columns["class_small_count"], np.float64)) @ weights
    pixels = np.nan_to_num(np.asarray(table.columns["class_small_share"], np.float64)) @ weights
    return (number / max(number.mean(), 1e-12) + pixels / max(pixels.mean(), 1e-12)) / 2, ()
