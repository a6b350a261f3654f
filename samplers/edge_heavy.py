"""The ``edge-heavy`` sampler: images with many borders between classes and many edges."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.scores import ScoreTable, Selection
from samplers.picking import enrich, rank
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


def choose_edge_heavy(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    fraction: Fraction = DEFAULT_FRACTION,
    diversity: Diversity = DEFAULT_DIVERSITY,
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Images with a high boundary density of the label and a high edge density; without labels the latter."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        picks = enrich(candidates, wanted, source, edginess(candidates), fraction, diversity)
        notes = () if has_labels(candidates) else ("no labels: edge density alone decides",)
        return Picks(picks.rows, picks.scores, notes)

    return select("edge-heavy", table, n, rng, rule, distance)


def edginess(table: ScoreTable) -> NDArray[np.float64]:
    """Score edges, 0..1: the mean rank of boundary density and edge density; without labels the latter's."""
    edges = rank(full_column(table, "edge_density"))
    return (edges + rank(full_column(table, "boundary_density"))) / 2 if has_labels(table) else edges
