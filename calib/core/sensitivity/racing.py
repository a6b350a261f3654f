"""Racing: images are spent on the units whose place in the ranking they can still change.

After every round each unit still in the race is judged by the interval of its loss, and leaves where

* even the far end of the interval is below the smallest loss that matters, or
* it loses less than the unit in the last of the top places, beyond chance on the same images,

as in Hoeffding races (Maron and Moore, NIPS 1993), with the paired bootstrap's interval in place of Hoeffding's bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.bootstrap import FEWEST

Reason = Literal["resolution", "top", "all"]
"""Why a unit saw no further image: it cannot lose what matters, it cannot reach the top places, it saw them all."""


@dataclass(frozen=True)
class Standing:
    """What is known of a unit after a round.

    Attributes:
        loss: points lost on the images seen, None where nothing is scored.
        high: far end of its interval, None where there are too few images to tell.
        behind: whether it loses less than the unit in the last top place, beyond chance; None where nobody knows.
    """

    loss: float | None
    high: float | None
    behind: bool | None


def round_ends(images: int, first: int = FEWEST) -> tuple[int, ...]:
    """How many images are seen after each round: as many as an interval needs, then twice as many each time."""
    ends = [min(first, images)]
    while ends[-1] < images:
        ends.append(min(2 * ends[-1], images))
    return tuple(ends)


def settled(standing: Standing, resolution: float) -> Reason | None:
    """Judge a unit after a round; None where further images may still change its place."""
    if standing.high is not None and standing.high < resolution:
        return "resolution"
    return "top" if standing.behind else None


def balanced_order(masks: Sequence[NDArray[np.bool_]], count: int, seed: int) -> NDArray[np.int64]:
    """Order images so that every beginning of the order holds about each slice's share.

    Step by step that image is taken which brings the shares of all slices nearest to those of the whole; among equals
    the first of a permutation drawn from the seed.

    Args:
        masks: bool ``[count]`` of each slice.
        count: number of images.
        seed: of the permutation.

    Returns:
        int64 ``[count]``, a permutation.
    """
    rows = np.random.default_rng(seed).permutation(count)
    member = np.array([mask[rows] for mask in masks], np.float64).reshape(len(masks), count).T
    share = member.mean(axis=0) if count else np.zeros(len(masks))
    taken = np.zeros(count, bool)
    lack = np.zeros(len(masks))
    order = np.empty(count, np.int64)
    for place in range(count):
        lack += share
        distance = ((member - lack) ** 2).sum(axis=1)
        distance[taken] = np.inf
        best = int(np.argmin(distance))
        taken[best] = True
        lack -= member[best]
        order[place] = rows[best]
    return order


def rank(
    losses: Sequence[float | None], highs: Sequence[float | None], flips: Sequence[float], resolution: float
) -> list[int]:
    """Order units, the most sensitive first.

    First come those whose loss may reach the resolution, by their loss; then those that surely lose less, by the
    pixels they flip: below the resolution the order of the losses is chance, that of the flips is not.

    Args:
        losses: points lost, None where nothing is scored.
        highs: far end of each interval, None where unknown.
        flips: share of flipped pixels.
        resolution: smallest loss that matters, in points.

    Returns:
        places in the order of rank.
    """

    def key(place: int) -> tuple[bool, float, float, int]:
        loss, high = losses[place], highs[place]
        small = loss is None or (high is not None and high < resolution)
        return small, 0.0 if small or loss is None else -loss, -flips[place], place

    return sorted(range(len(losses)), key=key)
