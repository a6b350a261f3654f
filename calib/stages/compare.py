"""Compare: from every image's counts to metrics, slices, differences and their intervals, as plain JSON values.

What is answered here is what ``evaluation.json`` holds; tables and report are made from it. IoU and shares are in 0..1,
differences in points (0..100), and what cannot be said is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core import bootstrap, metrics
from calib.core.bootstrap import Counts, Interval
from calib.core.confusion import FLIPPED
from calib.core.slices import DARK_PIXELS, Slice
from calib.core.tally import SEEN, image_part, matrix_counts
from calib.stages.describe import Json, Networks, by_class, describe_flips, describe_network, number
from calib.types.progress import Progress


@dataclass(frozen=True)
class Sampling:
    """How intervals are drawn.

    Attributes:
        resamples: number of resamples.
        seed: of the draws.
        groups: int64 ``[N]`` number of each image's group, drawn as a whole; None to draw images.
    """

    resamples: int
    seed: int
    groups: NDArray[np.int64] | None = None

    def units(self, counts: Counts, mask: NDArray[np.bool_]) -> Counts:
        """What is drawn from: the images of a mask, or their groups."""
        kept = counts.rows(mask)
        if self.groups is None:
            return kept
        return kept.grouped(np.unique(self.groups[mask], return_inverse=True)[1].astype(np.int64))


def compare_networks(
    networks: Networks, slices: Sequence[Slice], sampling: Sampling, reference: int | None, progress: Progress
) -> list[Json]:
    """Describe every network.

    Args:
        networks: their counts.
        slices: parts of the split; ``dark-pixels`` means the dark pixels of its images.
        sampling: how intervals are drawn.
        reference: place of the reference among the networks, or None.
        progress: shows one task.

    Returns:
        one JSON object a network, in their order.
    """
    whole = [matrix_counts(own, networks.layout, "confusion") for own in networks.counts]
    dark = [matrix_counts(own, networks.layout, "dark") for own in networks.counts]
    documents = [describe_network(networks, place, whole[place]) for place in range(len(networks.names))]
    everything = np.ones(len(networks.keys), bool)
    with progress.task("intervals", 1 + len(slices)) as task:
        _add_differences(documents, whole, everything, sampling, reference, networks.classes)
        task.advance()
        for part in slices:
            counts = dark if part.name == DARK_PIXELS else whole
            _add_slice(documents, counts, part, sampling, reference, networks.classes)
            task.advance()
    if reference is not None:
        for place, document in enumerate(documents):
            document["vs_reference"] |= describe_flips(networks, place, whole[place])
            document["vs_reference"] |= _further_differences(document, documents[reference])
    return documents


def image_rows(networks: Networks, slices: Sequence[Slice], reference: int | None) -> list[Json]:
    """Describe every image: size, slices, and under each network its own mIoU, pixel accuracy, ties and flips."""
    whole = [matrix_counts(own, networks.layout, "confusion") for own in networks.counts]
    sizes = image_part(networks.images, networks.image_layout, "size")
    seen = image_part(networks.images, networks.image_layout, "pixels")[:, SEEN]
    rows: list[Json] = [
        {
            "image": key,
            "height": int(sizes[row, 0]),
            "width": int(sizes[row, 1]),
            "scored_pixels": int(whole[0].labelled[row].sum()),
            "slices": [part.name for part in slices if part.mask[row]],
            "models": {},
        }
        for row, key in enumerate(networks.keys)
    ]
    for place, name in enumerate(networks.names):
        own = whole[place]
        miou = metrics.mean_iou(metrics.class_iou(own.right, own.labelled, own.predicted))
        accuracy = metrics.pixel_accuracy(own.right, own.labelled)
        ties = image_part(networks.counts[place], networks.layout, "ties")[:, 0]
        flips = image_part(networks.counts[place], networks.layout, "flips")[:, FLIPPED]
        for row, document in enumerate(rows):
            document["models"][name] = {
                "miou": number(miou[row]),
                "pixel_accuracy": number(accuracy[row]),
                "tie_rate": float(ties[row] / seen[row]) if networks.ties_known[place] else None,
                "flipped": float(flips[row] / seen[row]) if reference is not None else None,
            }
    return rows


def _add_differences(
    documents: Sequence[Json],
    counts: Sequence[Counts],
    mask: NDArray[np.bool_],
    sampling: Sampling,
    reference: int | None,
    classes: Sequence[str],
) -> None:
    """Add intervals over the whole split."""
    units = [sampling.units(own, mask) for own in counts]
    base = None if reference is None else bootstrap.resampled_iou(units[reference], sampling.resamples, sampling.seed)
    for document, own in zip(documents, units, strict=True):
        drawn = bootstrap.resampled_iou(own, sampling.resamples, sampling.seed)
        iou = own.iou()
        mean = float(metrics.mean_iou(iou))
        document["miou_ci95"] = _ci95(bootstrap.mean_interval(mean, drawn, own))
        if base is None or reference is None:
            continue
        before = units[reference].iou()
        delta = 100 * (mean - float(metrics.mean_iou(before)))
        found = bootstrap.intervals(100 * (iou - before), delta, 100 * (drawn - base), own)
        document["vs_reference"] = {
            "miou": _difference(found.mean, len(mask)),
            "per_class": {
                name: None if item is None else _difference(item, len(mask))
                for name, item in zip(classes, found.classes, strict=True)
            },
            "slices": {},
        }


def _add_slice(
    documents: Sequence[Json],
    counts: Sequence[Counts],
    part: Slice,
    sampling: Sampling,
    reference: int | None,
    classes: Sequence[str],
) -> None:
    units = [sampling.units(own, part.mask) for own in counts]
    images = int(part.mask.sum())
    base = None if reference is None else bootstrap.resampled_iou(units[reference], sampling.resamples, sampling.seed)
    for document, own in zip(documents, units, strict=True):
        iou = own.iou()
        mean = float(metrics.mean_iou(iou))
        document["slices"][part.name] = {
            "miou": number(mean),
            "per_class": by_class(iou, classes),
            "images": images,
            "pixel_accuracy": number(float(metrics.pixel_accuracy(own.right.sum(axis=0), own.labelled.sum(axis=0)))),
            "scored_pixels": int(own.labelled.sum()),
        }
        if base is None or reference is None:
            continue
        before = units[reference].iou()
        drawn = 100 * (bootstrap.resampled_iou(own, sampling.resamples, sampling.seed) - base)
        delta = 100 * (mean - float(metrics.mean_iou(before)))
        interval = bootstrap.mean_interval(delta, drawn, own)
        entry = _difference(interval, images)
        entry["per_class"] = by_class(100 * (iou - before), classes)
        document["vs_reference"]["slices"][part.name] = entry


def _difference(interval: Interval, images: int) -> Json:
    return {
        "delta": number(interval.value),
        "ci95": _ci95(interval),
        "significant": interval.significant,
        "images_to_see_0.1_points": bootstrap.images_to_see(interval, images),
    }


def _ci95(interval: Interval) -> list[float] | None:
    return None if interval.low is None or interval.high is None else [interval.low, interval.high]


def _further_differences(document: Json, reference: Json) -> Json:
    """Differences of the other metrics, in points, without intervals."""

    def points(*path: str) -> float | None:
        own: Any = document
        other: Any = reference
        for name in path:
            own, other = own[name], other[name]
        return None if own is None or other is None else 100 * (float(own) - float(other))

    return {
        "pixel_accuracy": points("pixel_accuracy"),
        "frequency_weighted_iou": points("frequency_weighted_iou"),
        "boundary_miou": points("boundary", "miou"),
        "small_object_recall": points("objects", "small", "recall"),
    }
