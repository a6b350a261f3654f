"""The ``class-balanced`` sampler: a floor for rare classes."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.scoretable import has_labels
from calib.types.parameters import Parameter
from calib.types.scores import ScoreTable, Selection
from samplers.picking import spread
from samplers.pool import DEFAULT_DISTANCE, Distance, Picks, select


def choose_class_balanced(
    table: ScoreTable,
    n: int,
    rng: np.random.Generator,
    floor: Annotated[
        float, Parameter("share of the set in which every class occurs, where the data has it", 0, 1)
    ] = 0.2,
    presence: Annotated[float, Parameter("a class occurs from this share of the labelled pixels on", 0, 1)] = 0.001,
    distance: Distance = DEFAULT_DISTANCE,
) -> Selection:
    """Images so that every class occurs in a share of the set, the rarest first; the rest represents the population."""

    def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
        if not has_labels(candidates):
            picks = spread(candidates, wanted, source)
            return Picks(picks.rows, picks.scores, ("no labels: classes are unknown, the population is represented",))
        share = np.nan_to_num(np.asarray(candidates.columns["class_share"], np.float64))
        occurs = (share >= presence) & (share > 0)
        target = np.minimum(int(np.ceil(floor * wanted)), occurs.sum(axis=0))
        chosen, scores = fill_floors(occurs, share, target, wanted)
        others = np.ones(len(candidates), bool)
        others[chosen] = False
        rest = spread(candidates, wanted - len(chosen), source, others).rows
        rows = np.concatenate([chosen, rest])
        notes = _note_rare(candidates.class_names, occurs.sum(axis=0), int(np.ceil(floor * wanted)))
        return Picks(rows, np.concatenate([scores, np.zeros(len(rest))]), notes)

    return select("class-balanced", table, n, rng, rule, distance)


def fill_floors(
    occurs: NDArray[np.bool_], share: NDArray[np.float64], target: NDArray[np.int64], n: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Take images greedily until every class occurs in its target number of them.

    The gain of an image is the sum over its classes of the unmet share of the target; ties go to the one with more
    pixels of rare classes.

    Args:
        occurs: bool ``[N, K]``.
        share: float64 ``[N, K]`` pixel shares.
        target: int64 ``[K]`` images wanted of each class, at most as many as there are.
        n: most images to take.

    Returns:
        rows and the gain of each.
    """
    rarity = share @ (1 / np.maximum(share.sum(axis=0), 1e-12)) / max(len(share), 1)
    missing = target.astype(np.float64)
    free = np.ones(len(occurs), bool)
    rows: list[int] = []
    gains: list[float] = []
    while len(rows) < n and missing.max(initial=0) > 0:
        gain = occurs @ (missing / np.maximum(target, 1))
        best = int(np.argmax(np.where(free, gain + 1e-6 * rarity, -1.0)))
        rows.append(best)
        gains.append(float(gain[best]))
        free[best] = False
        missing = np.maximum(missing - occurs[best], 0)
    return np.array(rows, np.int64), np.array(gains)


def _note_rare(names: tuple[str, ...], found: NDArray[np.int64], wanted: int) -> tuple[str, ...]:
    rare = [f"{name} {count}" for name, count in zip(names, found, strict=True) if count < wanted]
    return (f"classes in fewer than the {wanted} images wanted, all of these taken: {', '.join(rare)}",) if rare else ()
