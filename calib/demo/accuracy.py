"""What a network is worth on the demo's scenes: confusion counts by image, IoU by slice, differences with intervals.

IoU is that of the whole slice (counts are summed over its images before dividing), void pixels left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.demo.classes import CLASS_NAMES, SMALL_CLASSES

Counts = NDArray[np.int64]
Shares = NDArray[np.float64]

RESAMPLES = 1000
CONFIDENCE = (2.5, 97.5)


@dataclass(frozen=True)
class Slice:
    """A part of what is scored.

    Attributes:
        name: for people and for ``evaluation.json``.
        images: bool ``[N]``, the images that belong to it.
        classes: ids of the classes whose mean counts.
    """

    name: str
    images: NDArray[np.bool_]
    classes: tuple[int, ...]


@dataclass(frozen=True)
class Scored:
    """A network that was run on every image.

    Attributes:
        name: for people.
        path: its file, relative to the demo's folder.
        counts: int64 ``[N, K, K]``: pixels by image, label and prediction.
    """

    name: str
    path: str
    counts: Counts


def count_pixels(label: NDArray[Any], predicted: NDArray[Any], classes: int) -> Counts:
    """Count pixels by label (rows) and prediction (columns), ``[K, K]``; labels outside ``0..K-1`` are void."""
    scored = (label >= 0) & (label < classes)
    pairs = label[scored].astype(np.int64) * classes + predicted[scored]
    return np.bincount(pairs, minlength=classes * classes).reshape(classes, classes)


def iou(counts: NDArray[Any]) -> Shares:
    """Intersection over union by class, ``[..., K, K] -> [..., K]``; NaN for a class the labels do not have."""
    hit = np.diagonal(counts, axis1=-2, axis2=-1).astype(np.float64)
    labelled = counts.sum(axis=-1)
    union = labelled + counts.sum(axis=-2) - hit
    return np.where(labelled > 0, hit / np.maximum(union, 1), np.nan)


def slices_of(lights: Sequence[str]) -> tuple[Slice, ...]:
    """Slice a split by light, by the size of objects, and by both."""
    light = np.array(lights)
    everything, dark = np.ones(len(light), bool), light != "day"
    every_class = tuple(range(len(CLASS_NAMES)))
    return (
        Slice("all", everything, every_class),
        *(Slice(name, light == name, every_class) for name in ("day", "dusk", "night") if (light == name).any()),
        Slice("small", everything, SMALL_CLASSES),
        Slice("small in the dark", dark, SMALL_CLASSES),
    )


def mean_iou(counts: Counts, part: Slice) -> float:
    """Mean IoU of a slice over its classes that the labels have."""
    return float(_mean_of_present(iou(counts[part.images].sum(axis=0))[list(part.classes)]))


def interval(counts: Counts, reference: Counts, part: Slice, seed: int) -> tuple[float, float]:
    """Bootstrap the difference to a reference in points: images are drawn again, the same for both networks.

    Args:
        counts: of the network, ``[N, K, K]``.
        reference: of the reference, ``[N, K, K]``.
        part: what is compared.
        seed: of the resampling.

    Returns:
        2.5 and 97.5 percentile of ``mIoU - reference mIoU``, times 100.
    """
    number = int(part.images.sum())
    draws = np.random.default_rng(seed).multinomial(number, np.full(number, 1.0 / number), RESAMPLES)
    first, second = (_resampled(each[part.images], draws, part.classes) for each in (counts, reference))
    low, high = np.nanpercentile(100.0 * (first - second), CONFIDENCE)
    return float(low), float(high)


def _resampled(counts: Counts, draws: NDArray[np.int64], classes: tuple[int, ...]) -> Shares:
    images, width, _ = counts.shape
    sums = draws.astype(np.float64) @ counts.reshape(images, -1).astype(np.float64)
    by_class = iou(sums.reshape(-1, width, width))[:, list(classes)]
    return _mean_of_present(by_class)


def _mean_of_present(by_class: Shares) -> Shares:
    """Mean over the last axis without NaN; NaN where nothing is left (a draw may miss a rare class)."""
    present = ~np.isnan(by_class)
    number = present.sum(axis=-1)
    total = np.where(present, by_class, 0.0).sum(axis=-1)
    return np.where(number > 0, total / np.maximum(number, 1), np.nan)


def evaluation_document(models: Sequence[Scored], slices: Sequence[Slice], seed: int) -> dict[str, Any]:
    """Make ``evaluation.json`` of networks, the reference first; IoU in 0..1, differences in points."""
    reference = models[0]
    return {
        "schema": 1,
        "reference": reference.name,
        "models": [
            _model_entry(model, slices)
            | (_differences(model, reference, slices, seed) if model is not reference else {})
            for model in models
        ],
    }


def _model_entry(model: Scored, slices: Sequence[Slice]) -> dict[str, Any]:
    whole = model.counts.sum(axis=0)
    return {
        "name": model.name,
        "path": model.path,
        "miou": mean_iou(model.counts, slices[0]),
        "per_class": _by_name(iou(whole)),
        "pixel_accuracy": float(np.trace(whole) / whole.sum()),
        "slices": {part.name: _slice_entry(model.counts, part) for part in slices[1:]},
    }


def _slice_entry(counts: Counts, part: Slice) -> dict[str, Any]:
    by_class = _by_name(iou(counts[part.images].sum(axis=0)))
    kept = {CLASS_NAMES[number]: by_class[CLASS_NAMES[number]] for number in part.classes}
    return {"miou": mean_iou(counts, part), "per_class": kept, "images": int(part.images.sum())}


def _by_name(values: Shares) -> dict[str, float | None]:
    return {name: None if np.isnan(v) else float(v) for name, v in zip(CLASS_NAMES, values, strict=True)}


def _differences(model: Scored, reference: Scored, slices: Sequence[Slice], seed: int) -> dict[str, Any]:
    def compare(part: Slice) -> dict[str, Any]:
        delta = 100.0 * (mean_iou(model.counts, part) - mean_iou(reference.counts, part))
        return {"delta": delta, "ci95": list(interval(model.counts, reference.counts, part, seed))}

    everything = slices[0].images
    present = reference.counts.sum(axis=(0, 2)) > 0
    per_class = {
        name: compare(Slice(name, everything, (number,))) if present[number] else None
        for number, name in enumerate(CLASS_NAMES)
    }
    by_slice = {part.name: compare(part) for part in slices[1:]}
    return {"vs_reference": {"miou": compare(slices[0]), "per_class": per_class, "slices": by_slice}}


def count_image(
    run: Callable[[Mapping[str, Any]], Mapping[str, Any]], feeds: Mapping[str, Any], label: NDArray[Any]
) -> Counts:
    """Run a network on one image and count its pixels; logits must have the label's size."""
    logits = np.asarray(run(feeds)["logits"])
    return count_pixels(label, logits[0].argmax(axis=0), logits.shape[1])
