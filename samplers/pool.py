"""What every built-in sampler shares: candidates without duplicates and flat images, and exact sizes.

A sampler's rule sees a clean table: rows in canonical order (by file digest, then key), near-duplicates and flat
images taken out. Only when the rule runs out of candidates are they offered after all, so that the answer always has
``min(n, images)`` rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.phash import NEAR_DISTANCE, NEAR_LIGHT, find_duplicates
from calib.core.scores import is_flat
from calib.core.scoretable import canonical_order, full_column, take_rows
from calib.types.parameters import Parameter
from calib.types.scores import ScoreTable, Selection

Distance = Annotated[int, Parameter("perceptual hashes at most this many bits apart are near-duplicates", 0, 64)]
Fraction = Annotated[float, Parameter("share of the set that is enriched; the rest represents the population", 0, 1)]
Diversity = Annotated[
    float, Parameter("the enriched share is picked for variety among the best (1 + diversity) times its size", 0, 10)
]

DEFAULT_FRACTION = 0.5
DEFAULT_DIVERSITY = 0.25
DEFAULT_DISTANCE = NEAR_DISTANCE


@dataclass(frozen=True)
class Picks:
    """A rule's answer.

    Attributes:
        rows: int64, unique row numbers of the table the rule saw, best first.
        scores: float64, one a row.
        notes: what the rule has to say.
        names: the sampler that chose each row, empty when it is the rule's own.
    """

    rows: NDArray[np.int64]
    scores: NDArray[np.float64]
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()


Rule = Callable[[ScoreTable, int, np.random.Generator], Picks]
"""``(clean table, wanted <= its length, rng) -> Picks``."""


@dataclass(frozen=True)
class Tier:
    """Candidates of one kind, offered only when those of the tiers before are used up.

    Attributes:
        rows: int64 row numbers in the canonical table.
        kind: what they are, for notes; empty for the clean ones.
    """

    rows: NDArray[np.int64]
    kind: str


def select(
    name: str, table: ScoreTable, n: int, rng: np.random.Generator, rule: Rule, distance: int = NEAR_DISTANCE
) -> Selection:
    """Run a rule on the clean candidates, then on what was left out until the size is exact.

    Args:
        name: the sampler's name.
        table: scores, rows in any order.
        n: images wanted.
        rng: random source.
        rule: picks from one tier.
        distance: Hamming distance of near-duplicates.

    Returns:
        ``min(n, len(table))`` unique rows.
    """
    order = canonical_order(table)
    canonical = take_rows(table, order)
    rows: list[NDArray[np.int64]] = []
    scores: list[NDArray[np.float64]] = []
    names: list[str] = []
    notes: list[str] = []
    wanted = min(n, len(table))
    for number, tier in enumerate(make_tiers(canonical, distance)):
        missing = wanted - len(names)
        taken = min(missing, len(tier.rows))
        if taken > 0:
            picks = rule(take_rows(canonical, tier.rows), taken, rng)
            rows.append(order[tier.rows[picks.rows]])
            scores.append(picks.scores)
            names += picks.names or (name,) * len(picks.rows)
            notes += picks.notes if number == 0 else ()
        notes += _describe_tier(tier, max(taken, 0))
    if n > len(table):
        notes.append(f"{n} images wanted, the set has {len(table)}: all of them are taken")
    return Selection(
        np.concatenate([*rows, np.empty(0, np.int64)]).astype(np.int64),
        np.concatenate([*scores, np.empty(0)]),
        tuple(names),
        tuple(notes),
    )


def make_tiers(table: ScoreTable, distance: int) -> list[Tier]:
    """Part the rows of a canonical table: clean, near-duplicates, identical files, flat images."""
    flat = is_flat(table) if "flatness" in table.columns else np.zeros(len(table), bool)
    same = np.zeros(len(table), bool)
    if "sha256" in table.columns:
        digests = table.columns["sha256"]
        same[1:] = (digests[1:] == digests[:-1]) & (digests[1:] != "")
    near = np.zeros(len(table), bool)
    rest = np.flatnonzero(~flat & ~same)
    if "phash" in table.columns:
        near[rest] = find_duplicates(table.columns["phash"][rest], full_column(table, "luma_mean")[rest], distance)
    look = f"hashes within {distance} bits, mean luma within {NEAR_LIGHT:g} levels"
    return [
        Tier(np.flatnonzero(~flat & ~same & ~near), ""),
        Tier(np.flatnonzero(near), f"near-duplicates ({look})"),
        Tier(np.flatnonzero(same & ~flat), "copies of a file that is in the set already"),
        Tier(np.flatnonzero(flat), "flat images (black, white or one colour: luma within 16 levels)"),
    ]


def _describe_tier(tier: Tier, taken: int) -> list[str]:
    if not tier.kind or not len(tier.rows):
        return []
    left = len(tier.rows) - taken
    if not taken:
        return [f"{left} {tier.kind} left out"]
    return [f"{taken} {tier.kind} taken after all, because the other images do not suffice; {left} left out"]
