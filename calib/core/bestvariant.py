"""Which variant of a build to release, by measured accuracy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

RULE = "least loss on the worst slice among those whose mIoU interval overlaps the best's"


@dataclass(frozen=True)
class VariantScore:
    """What is known of a variant.

    Attributes:
        name: the calibrator.
        delta: mIoU minus the reference's, in points.
        ci95: its interval, or None where there are too few images: then only equal values overlap.
        slices: slice to mIoU minus the reference's in points; None where a slice cannot be judged.
    """

    name: str
    delta: float
    ci95: tuple[float, float] | None
    slices: Mapping[str, float | None]


@dataclass(frozen=True)
class Judged:
    """A variant under the rule: its score, whether it is in question, and its worst slice."""

    score: VariantScore
    contender: bool
    worst_slice: str | None
    worst_delta: float


@dataclass(frozen=True)
class Choice:
    """The variant chosen, the one with the best mIoU, and every variant's numbers in the order given."""

    name: str
    best: str
    rule: str
    judged: tuple[Judged, ...]

    @property
    def words(self) -> str:
        """Say the choice and its reason in a sentence or two."""
        chosen = next(item for item in self.judged if item.score.name == self.name)
        rivals = [item.score.name for item in self.judged if item.contender and item.score.name != self.name]
        change = f"a {'loss' if chosen.worst_delta < 0 else 'gain'} of {abs(chosen.worst_delta):.2f} points"
        about = f"its worst slice is {chosen.worst_slice!r}, with {change}"
        if not chosen.worst_slice:
            about = f"{change} on the whole split"
        among = f" Its mIoU cannot be told apart from that of {', '.join(rivals)}." if rivals else ""
        return f"{self.name}: {about}.{among}"


def choose_variant(scores: Sequence[VariantScore]) -> Choice:
    """Choose by the rule; of equals the one named first wins.

    Differences against one reference are compared, so their intervals are paired ones: they hold what the quantization
    changed and not how hard the images are. A variant without slices is judged by its mIoU.

    Args:
        scores: in order of preference; at least one.

    Raises:
        ValueError: there is none, or a delta is not finite.
    """
    if not scores or any(not math.isfinite(score.delta) for score in scores):
        raise ValueError("a choice needs variants with finite differences")
    best = max(scores, key=lambda score: score.delta)
    judged = tuple(_judge(score, best) for score in scores)
    chosen = max((item for item in judged if item.contender), key=lambda item: item.worst_delta)
    return Choice(chosen.score.name, best.name, RULE, judged)


def _judge(score: VariantScore, best: VariantScore) -> Judged:
    known = {name: delta for name, delta in score.slices.items() if delta is not None and math.isfinite(delta)}
    worst = min(known, key=lambda name: known[name], default=None)
    low, high = score.ci95 or (score.delta, score.delta)
    best_low, best_high = best.ci95 or (best.delta, best.delta)
    overlaps = low <= best_high and best_low <= high
    return Judged(score, overlaps, worst, score.delta if worst is None else known[worst])
