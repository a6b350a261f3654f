"""Describe: from the counts of every image to the metrics of one network over the whole split, as plain JSON values.

IoU and shares are in 0..1, and what cannot be said is None.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core import metrics
from calib.core.bootstrap import Counts
from calib.core.boundary import boundary_iou
from calib.core.confusion import BAND_FLIPPED, FLIPPED, HARMED, HELPED
from calib.core.smallobjects import BANDS, SMALL_BANDS
from calib.core.tally import BAND, DARK, SEEN, Layout, Stack, image_part, total_part

Json = dict[str, Any]
Floats = NDArray[np.float64]
IMAGES_NAMED = 5


@dataclass(frozen=True)
class Networks:
    """The counts of an evaluation, as the comparison takes them.

    Attributes:
        names: of the networks.
        classes: class names.
        keys: the images.
        images: counts that no network changes.
        counts: counts under each network.
        layout: of ``counts``.
        image_layout: of ``images``.
        foreign: of each network, image to predictions outside the class table to pixels.
        ties_known: of each network.
    """

    names: Sequence[str]
    classes: Sequence[str]
    keys: Sequence[str]
    images: Stack
    counts: Sequence[Stack]
    layout: Layout
    image_layout: Layout
    foreign: Sequence[Mapping[str, Mapping[int, int]]]
    ties_known: Sequence[bool]


def number(value: float) -> float | None:
    """A number for JSON: None for NaN."""
    return None if math.isnan(value) else float(value)


def by_class(values: Floats, classes: Sequence[str]) -> dict[str, float | None]:
    """Values by class name, NaN as None."""
    return {name: number(value) for name, value in zip(classes, values, strict=True)}


def describe_network(networks: Networks, place: int, counts: Counts) -> Json:
    """What one network reaches on the whole split."""
    own, layout = networks.counts[place], networks.layout
    right, labelled, predicted = (item.sum(axis=0) for item in (counts.right, counts.labelled, counts.predicted))
    iou = metrics.class_iou(right, labelled, predicted)
    only_predicted = (labelled == 0) & (predicted > 0)
    return {
        "miou": number(float(metrics.mean_iou(iou))),
        "per_class": by_class(iou, networks.classes),
        "pixel_accuracy": number(float(metrics.pixel_accuracy(right, labelled))),
        "frequency_weighted_iou": number(float(metrics.frequency_weighted_iou(iou, labelled))),
        "mean_of_images_miou": number(metrics.mean_of_images(counts.right, counts.labelled, counts.predicted)),
        "absent": [name for name, pixels in zip(networks.classes, labelled, strict=True) if not pixels],
        "only_predicted": {networks.classes[int(c)]: int(predicted[c]) for c in np.flatnonzero(only_predicted)},
        "miou_counting_only_predicted": number(float(metrics.mean_iou_of_predicted_too(iou, predicted))),
        "scored_pixels": int(labelled.sum()),
        "boundary": _boundary(networks, place),
        "objects": _objects(networks, place),
        "ties": _ties(networks, place),
        "pixels_without_prediction": int(total_part(own, layout, "lost")[0]),
        "predictions_outside_classes": _foreign(networks, place),
        "confusion": total_part(own, layout, "confusion").tolist(),
        "slices": {},
        "vs_reference": None,
    }


def _boundary(networks: Networks, place: int) -> Json:
    predicted, shared = total_part(networks.counts[place], networks.layout, "boundary")
    iou = boundary_iou(total_part(networks.images, networks.image_layout, "band"), predicted, shared)
    return {"miou": number(float(metrics.mean_iou(iou))), "per_class": by_class(iou, networks.classes)}


def _objects(networks: Networks, place: int) -> Json:
    """Recall by size band, and of all small objects by class."""
    known = total_part(networks.images, networks.image_layout, "objects")
    found = total_part(networks.counts[place], networks.layout, "found")
    bands = {band: _recall(known[:, row].sum(axis=1), found[:, row].sum(axis=1)) for row, band in enumerate(BANDS)}
    small, small_found = known[:, :SMALL_BANDS].sum(axis=1), found[:, :SMALL_BANDS].sum(axis=1)
    return {
        "bands": bands,
        "small": _recall(small.sum(axis=1), small_found.sum(axis=1)),
        "small_per_class": {
            name: _recall(small[:, place_], small_found[:, place_]) for place_, name in enumerate(networks.classes)
        },
    }


def _recall(known: NDArray[np.int64], found: NDArray[np.int64]) -> Json:
    """Objects and their pixels, each with the share found."""
    return {
        "objects": int(known[0]),
        "found": int(found[0]),
        "recall": float(found[0] / known[0]) if known[0] else None,
        "pixel_recall": float(found[1] / known[1]) if known[1] else None,
    }


def _ties(networks: Networks, place: int) -> Json | None:
    """Pixels whose best logit several classes share; None where the network's own argmax hides them."""
    if not networks.ties_known[place]:
        return None
    ties = image_part(networks.counts[place], networks.layout, "ties")[:, 0]
    seen = image_part(networks.images, networks.image_layout, "pixels")[:, SEEN]
    rates = ties / np.maximum(seen, 1)
    worst = int(np.argmax(rates)) if len(rates) else 0
    return {
        "pixels": int(ties.sum()),
        "rate": float(ties.sum() / max(int(seen.sum()), 1)),
        "worst_image": networks.keys[worst] if len(rates) else None,
        "worst_rate": float(rates[worst]) if len(rates) else None,
        "rule": "the first of equal classes wins",
    }


def _foreign(networks: Networks, place: int) -> Json:
    """Predictions outside the class table: each is a miss of its label's class."""
    ids: Counter[int] = Counter()
    for pixels in networks.foreign[place].values():
        ids.update(pixels)
    confusion = total_part(networks.counts[place], networks.layout, "confusion")
    return {
        "scored_pixels": int(confusion[:, -1].sum()),
        "ids": {str(value): count for value, count in sorted(ids.items())},
        "images": len(networks.foreign[place]),
        "first_images": sorted(networks.foreign[place])[:IMAGES_NAMED],
    }


def describe_flips(networks: Networks, place: int, counts: Counts) -> Json:
    """Which share of the pixels changed class against the reference, and where."""
    flips = total_part(networks.counts[place], networks.layout, "flips")
    pixels = total_part(networks.images, networks.image_layout, "pixels")
    classes = total_part(networks.counts[place], networks.layout, "flipped_class")
    labelled = counts.labelled.sum(axis=0)
    scored = int(labelled.sum())
    inside = int(pixels[SEEN] - pixels[BAND])
    share = {
        name: float(classes[row] / labelled[row]) if labelled[row] else None
        for row, name in enumerate(networks.classes)
    }
    return {
        "flips": {
            "share": float(flips[FLIPPED] / max(int(pixels[SEEN]), 1)),
            "pixels": int(flips[FLIPPED]),
            "share_of_flips_at_boundaries": float(flips[BAND_FLIPPED] / flips[FLIPPED]) if flips[FLIPPED] else None,
            "share_at_boundaries": float(flips[BAND_FLIPPED] / max(int(pixels[BAND]), 1)),
            "share_inside": float((flips[FLIPPED] - flips[BAND_FLIPPED]) / max(inside, 1)),
            "harmed": float(flips[HARMED] / max(scored, 1)),
            "helped": float(flips[HELPED] / max(scored, 1)),
            "per_class": share,
        }
    }


def split_facts(networks: Networks) -> Json:
    """Pixels of the split: seen, cropped off, void, dark, in the boundary band."""
    pixels = total_part(networks.images, networks.image_layout, "pixels").tolist()
    names = ("seen", "cropped", "void", "dark", "boundary_band")
    return dict(zip(names, pixels, strict=True))


def dark_holders(networks: Networks) -> NDArray[np.bool_]:
    """Images that have dark pixels, bool ``[N]``."""
    return np.asarray(image_part(networks.images, networks.image_layout, "pixels")[:, DARK] > 0)
