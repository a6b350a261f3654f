"""How many images are enough: watch the ranges settle while images are added."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from calib.types.statistics import DynamicRange

FIRST = 16
GROWTH = 1.5
MOST = 1024
TOLERANCE_BITS = 0.05
"""A range that moves less than this (3.5 %) loses or gains less than a twentieth of a bit."""
CALM_STEPS = 2
SHARE = 0.95
"""Share of the tensors whose ranges must have settled."""


@dataclass(frozen=True)
class Settling:
    """How the ranges moved.

    Attributes:
        images: image counts, ascending.
        change: calibrator label to the change at each count against the one before, in bits: the 95th percentile over
            tensors of ``|log2(amax / earlier amax)|``; the first is nan.
        settled: whether every calibrator stayed within tolerance at the last two counts.
    """

    images: tuple[int, ...]
    change: Mapping[str, tuple[float, ...]]
    settled: bool


def image_counts(most: int) -> Iterator[int]:
    """Growing numbers of images to try, the last being ``most``."""
    count = min(FIRST, most)
    while count < most:
        yield count
        count = min(math.ceil(count * GROWTH), most)
    yield most


def range_change(earlier: Mapping[str, DynamicRange], later: Mapping[str, DynamicRange]) -> float:
    """Change of a calibrator's ranges in bits: 95th percentile over tensors of ``|log2(later / earlier)|``.

    A tensor that was dead and came alive (or the reverse) counts as one bit.
    """
    moves = sorted(_bits(earlier[name].amax, item.amax) for name, item in later.items() if name in earlier)
    return moves[min(math.ceil(SHARE * len(moves)), len(moves)) - 1] if moves else 0.0


def _bits(earlier: float, later: float) -> float:
    if earlier == later:
        return 0.0
    if not earlier or not later:
        return 1.0
    return abs(math.log2(later / earlier))


def follow(steps: list[tuple[int, Mapping[str, Mapping[str, DynamicRange]]]]) -> Settling:
    """Judge the ranges found so far.

    Args:
        steps: image count and ranges (calibrator label to tensor to range) at each step, ascending.
    """
    labels = list(steps[-1][1])
    change = {
        label: (
            math.nan,
            *(range_change(before[1][label], after[1][label]) for before, after in pairwise(steps)),
        )
        for label in labels
    }
    calm = all(max(moves[-CALM_STEPS:]) <= TOLERANCE_BITS for moves in change.values())
    return Settling(tuple(count for count, _ in steps), change, len(steps) > CALM_STEPS and calm)
