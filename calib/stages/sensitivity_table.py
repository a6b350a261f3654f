"""From the counts of every image under every unit to losses with intervals, and to the document that states them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.bootstrap import Counts, Interval
from calib.core.metrics import mean_iou
from calib.core.sensitivity.counts import (
    BASE,
    FLIPPED,
    HARMED,
    HELPED,
    NOISE,
    PREDICTED,
    RIGHT,
    SIGNAL,
    ImageCounts,
    ImageRecord,
)
from calib.core.sensitivity.losses import Comparison, Draws, below
from calib.core.sensitivity.racing import Standing
from calib.core.slices import DARK_PIXELS, Slice
from calib.stages.compare import Sampling
from calib.stages.describe import by_class, number

Json = dict[str, Any]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Measure:
    """What units are ranked by.

    Attributes:
        kind: ``miou``, ``class`` or ``slice``.
        name: of the class or the slice.
    """

    kind: str
    name: str = ""

    def __str__(self) -> str:
        """As the user writes it."""
        return f"{self.kind}:{self.name}" if self.name else self.kind

    @property
    def words(self) -> str:
        """As people read it."""
        return f"IoU on {self.kind} {self.name}" if self.name else "mIoU"


@dataclass
class Evidence:
    """The counts of the images that were seen, in the order in which they were taken.

    Attributes:
        records: of the images.
        classes: class names.
        slices: masks over all images in that order, those not seen yet included.
        sampling: how intervals are drawn; its groups are in that order.
    """

    records: Sequence[ImageRecord]
    classes: Sequence[str]
    slices: Sequence[Slice]
    sampling: Sampling
    _comparisons: dict[tuple[int, str], Comparison] = field(default_factory=dict)

    def mask(self, images: int, part: str = "") -> Mask:
        """Mark those of the first ``images`` images that are in a slice, all of them without one; bool ``[images]``."""
        return np.ones(images, bool) if not part else self._slice(part).mask[:images]

    def counts(self, network: int, images: int, part: str = "") -> Counts:
        """Counts of a network on the first ``images`` images, or those of them in a slice; groups summed.

        Images are sorted by key, so that intervals do not depend on the order in which they were taken.
        """
        plane = int(part == DARK_PIXELS)
        kept = self.records[:images]
        shape = (images, 2, len(self.classes))
        found = np.array([record.networks[network].classes[plane] for record in kept], np.int64).reshape(shape)
        labelled = np.array([record.label.labelled[plane] for record in kept], np.int64).reshape(images, -1)
        order = np.array(sorted(range(images), key=lambda place: kept[place].key), np.int64)
        whole = Counts(found[order, RIGHT], labelled[order], found[order, PREDICTED])
        groups = None if self.sampling.groups is None else self.sampling.groups[:images][order]
        return replace(self.sampling, groups=groups).units(whole, self.mask(images, part)[order])

    def comparison(self, images: int, part: str = "") -> Comparison:
        """The base network on the first ``images`` images, ready to be compared with."""
        key = (images, part)
        if key not in self._comparisons:
            base = self.counts(BASE, images, part)
            self._comparisons[key] = Comparison(base, self._draws(base))
        return self._comparisons[key]

    def standings(self, units: Sequence[int], images: int, measure: Measure, top: int) -> list[Standing]:
        """Judge units by what they lose on the first ``images`` images."""
        part = measure.name if measure.kind == "slice" else ""
        counts = [self.counts(unit, images, part) for unit in units]
        losses = [self._loss(item, images, measure) for item in counts]
        order = sorted(range(len(units)), key=lambda place: (-losses[place].value, place))
        behind: list[bool | None] = [None] * len(units)
        if len(units) > top and measure.kind != "class" and not math.isnan(losses[order[top - 1]].value):
            leader = counts[order[top - 1]]
            rest = order[top:]
            for place, answer in zip(
                rest, below([counts[place] for place in rest], leader, self._draws(leader)), strict=True
            ):
                behind[place] = answer
        return [Standing(number(item.value), item.high, answer) for item, answer in zip(losses, behind, strict=True)]

    def loss(self, network: int, images: int) -> Json:
        """What a network loses in the mean, in every class and on every slice, as JSON values."""
        found = self.comparison(images).losses(self.counts(network, images))
        return {
            "miou": _interval(found.mean),
            "per_class": {
                name: None if item is None else _interval(item)
                for name, item in zip(self.classes, found.classes, strict=True)
            },
            "slices": {part.name: self._slice_loss(network, images, part.name) for part in self.slices},
        }

    def flips(self, network: int, images: int) -> Json:
        """Which pixels change class, and the noise on the scores, as JSON values."""
        own = [record.networks[network] for record in self.records[:images]]
        flips = _total(own, "flips")
        labelled = np.sum([record.label.labelled[0] for record in self.records[:images]], axis=0)
        seen = max(sum(record.label.seen for record in self.records[:images]), 1)
        scored = max(int(np.sum(labelled)), 1)
        flipped = _total(own, "flipped")
        shares = np.where(labelled > 0, flipped / np.maximum(labelled, 1), np.nan)
        return {
            "share": float(flips[FLIPPED] / seen),
            "pixels": int(flips[FLIPPED]),
            "harmed": float(flips[HARMED] / scored),
            "helped": float(flips[HELPED] / scored),
            "per_class": by_class(shares, self.classes),
        }

    def sqnr(self, network: int, images: int) -> float | None:
        """Signal to quantization noise of the scores, in decibels; None without noise or scores."""
        powers = np.sum([record.networks[network].powers for record in self.records[:images]], axis=0)
        signal, noise = float(powers[SIGNAL]), float(powers[NOISE])
        return 10 * math.log10(signal / noise) if signal > 0 and noise > 0 else None

    def miou(self, images: int) -> Json:
        """What the base network reaches, IoU in 0..1."""
        iou = self.counts(BASE, images).iou()
        return {"miou": number(float(mean_iou(iou))), "per_class": by_class(iou, self.classes)}

    def _slice(self, name: str) -> Slice:
        return next(part for part in self.slices if part.name == name)

    def _draws(self, counts: Counts) -> Draws:
        return Draws(len(counts.right), self.sampling.resamples, self.sampling.seed)

    def _loss(self, counts: Counts, images: int, measure: Measure) -> Interval:
        comparison = self.comparison(images, measure.name if measure.kind == "slice" else "")
        if measure.kind != "class":
            return comparison.mean_loss(counts)[0]
        found = comparison.losses(counts).classes[list(self.classes).index(measure.name)]
        return found or Interval(math.nan, None, None, None)

    def _slice_loss(self, network: int, images: int, part: str) -> Json:
        mean, classes = self.comparison(images, part).mean_loss(self.counts(network, images, part))
        return {
            **_interval(mean),
            "images": int(self.mask(images, part).sum()),
            "per_class": by_class(classes, self.classes),
        }


def _total(counts: Sequence[ImageCounts], name: str) -> NDArray[np.int64]:
    return np.asarray(np.sum([getattr(item, name) for item in counts], axis=0), np.int64)


def _interval(item: Interval) -> Json:
    known = item.low is not None and item.high is not None
    return {
        "loss": number(item.value),
        "ci95": [item.low, item.high] if known else None,
        "significant": item.significant,
    }
