"""The ``stratified`` sampler: every stratum of light and group (or scale) by its share of the population."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import full_column, has_labels
from calib.types.parameters import Parameter
from calib.types.scores import ScoreTable, Selection
from samplers.picking import rank, share_out, spread
from samplers.pool import DEFAULT_DISTANCE, Distance, Picks, select


def choose_stratified(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    bins: Annotated[int, Parameter("bins of equal size for light, and for scale", 1, 16)] = 4,
    by: Annotated[
        str,
        Parameter(
            "second axis beside light: the manifest's groups or object scale", choices=("auto", "group", "scale")
        ),
    ] = "auto",
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Every stratum of light x group (or scale) by its share of the population, spread evenly inside."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        strata = make_strata(candidates, bins, by)
        sizes = share_out(np.bincount(strata), wanted)
        rows, turns = [], []
        for stratum, size in enumerate(sizes):
            if size:
                rows.append(spread(candidates, int(size), source, strata == stratum).rows)
                turns.append((np.arange(size) + 0.5) / size)
        order = np.argsort(np.concatenate(turns), kind="stable")
        chosen = np.concatenate(rows)[order]
        share = np.bincount(strata)[strata] / len(candidates)
        return Picks(chosen, share[chosen])

    return select("stratified", table, n, rng, rule, distance)


def make_strata(table: ScoreTable, bins: int, by: str = "auto") -> NDArray[np.int64]:
    """Number the strata: quantile bins of mean luma x (group, or quantile bins of scale), int64 ``[N]`` from 0.

    Scale is the pixel share of small objects, without labels edge density. ``auto`` takes groups where there are any.
    """
    light = (rank(full_column(table, "luma_mean")) * bins).astype(np.int64)
    groups = np.asarray(table.columns.get("group", np.full(len(table), "")))
    if by == "group" or (by == "auto" and len(np.unique(groups)) > 1):
        second = np.unique(groups, return_inverse=True)[1]
    else:
        scale = full_column(table, "small_share" if has_labels(table) else "edge_density")
        second = (rank(scale) * bins).astype(np.int64)
    return np.asarray(np.unique(light * (int(second.max(initial=0)) + 1) + second, return_inverse=True)[1])
