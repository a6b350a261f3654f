"""The ``dark-regions`` sampler: images that are dark, judged by their pixels."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.scores import DARK_IMAGE, is_dark
from calib.core.scoretable import full_column
from calib.types.parameters import Parameter
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

TIE_BREAK = 1e-3


def choose_dark_regions(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    fraction: Fraction = DEFAULT_FRACTION,
    share: Annotated[float, Parameter("an image counts as dark from this share of dark pixels on", 0, 1)] = DARK_IMAGE,
    diversity: Diversity = DEFAULT_DIVERSITY,
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Images with many dark pixels, over the whole picture and inside every labelled class."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        dark = is_dark(candidates, share)
        picks = enrich(candidates, wanted, source, darkness(candidates), fraction, diversity, dark)
        notes = _note_shortage(candidates, int(dark.sum()), enriched_size(wanted, fraction), share)
        return Picks(picks.rows, picks.scores, notes)

    return select("dark-regions", table, n, rng, rule, distance)


def darkness(table: ScoreTable) -> NDArray[np.float64]:
    """Score darkness, about 0..1.

    The mean of the dark share of the picture and of the average over its classes of the dark share inside each (so
    that a large class, or a dark unlabelled border, does not decide alone); without a label the former. Mean luma
    breaks ties.
    """
    dark = full_column(table, "dark_share")
    inside = table.columns.get("class_dark_share")
    if inside is not None and inside.size:
        known = np.isfinite(inside)
        average = np.where(known, inside, 0).sum(axis=1) / np.maximum(known.sum(axis=1), 1)
        dark = np.where(known.any(axis=1), (dark + average) / 2, dark)
    return np.asarray(dark + TIE_BREAK * (1 - full_column(table, "luma_mean", 255.0) / 255))


def _note_shortage(table: ScoreTable, found: int, wanted: int, share: float) -> tuple[str, ...]:
    if found >= wanted:
        return ()
    luma = table.thresholds.get("dark_luma", 32)
    return (
        f"{found} dark images found (at least {share:.0%} of the pixels with luma below {luma:g}), {wanted} wanted; "
        f"the other {wanted - found} are the darkest of the rest",
    )
