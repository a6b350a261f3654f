"""The ``random`` sampler: every image with the same probability."""

from __future__ import annotations

import numpy as np

from calib.types.scores import ScoreTable, Selection
from samplers.pool import DEFAULT_DISTANCE, Distance, Picks, select


def draw_randomly(
    table: ScoreTable, n: int, rng: np.random.Generator, distance: Distance = DEFAULT_DISTANCE
) -> Selection:
    """Every image with the same probability, near-duplicates and flat images left out."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        return Picks(source.permutation(len(candidates))[:wanted].astype(np.int64), np.ones(wanted))

    return select("random", table, n, rng, rule, distance)
