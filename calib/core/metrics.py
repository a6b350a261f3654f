"""Accuracy from confusion counts, as pure functions over the last axis.

Everything is computed from three counts a class: right pixels (the matrix's diagonal), labelled pixels (its row) and
predicted pixels (its column). They add up over images, so a data set, a slice and a bootstrap resample are sums of
images' counts, divided once. That is IoU over a data set; the mean of images' own values goes by its own name.

A class without a labelled pixel has no IoU (NaN; null in JSON) and does not enter a mean: which classes count then
depends on the labels alone and is the same for every network, so differences compare like with like. False positives of
such a class are not lost: each is a miss of the class it covers.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def class_iou(right: NDArray[np.number], labelled: NDArray[np.number], predicted: NDArray[np.number]) -> Floats:
    """Intersection over union of each class.

    Args:
        right: ``[..., K]`` pixels of each class predicted as such.
        labelled: ``[..., K]`` pixels of each class in the labels.
        predicted: ``[..., K]`` scored pixels predicted as each class.

    Returns:
        float64 ``[..., K]`` in 0..1; NaN where the labels hold no pixel of the class.
    """
    union = labelled + predicted - right
    return np.where(labelled > 0, right / np.maximum(union, 1), np.nan)


def mean_iou(iou: Floats) -> Floats:
    """Mean over the classes present, ``[..., K]`` to ``[...]``; NaN where no class is."""
    present = ~np.isnan(iou)
    count = present.sum(axis=-1)
    total = np.where(present, iou, 0.0).sum(axis=-1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def mean_iou_of_predicted_too(iou: Floats, predicted: NDArray[np.number]) -> Floats:
    """Mean that also counts classes which are only predicted, as 0: the convention of other tools, under its own name.

    Args:
        iou: ``[..., K]`` of :func:`class_iou`.
        predicted: ``[..., K]`` pixels predicted as each class.
    """
    return mean_iou(np.where(np.isnan(iou) & (predicted > 0), 0.0, iou))


def frequency_weighted_iou(iou: Floats, labelled: NDArray[np.number]) -> Floats:
    """Mean IoU weighted by the classes' labelled pixels (Long, Shelhamer, Darrell: FCN, CVPR 2015, section 5)."""
    total = labelled.sum(axis=-1)
    weighted = (np.where(np.isnan(iou), 0.0, iou) * labelled).sum(axis=-1)
    return np.where(total > 0, weighted / np.maximum(total, 1), np.nan)


def pixel_accuracy(right: NDArray[np.number], labelled: NDArray[np.number]) -> Floats:
    """Share of the scored pixels that are right; NaN without any."""
    total = labelled.sum(axis=-1)
    return np.where(total > 0, right.sum(axis=-1) / np.maximum(total, 1), np.nan)


def mean_of_images(right: NDArray[np.number], labelled: NDArray[np.number], predicted: NDArray[np.number]) -> float:
    """Mean over images of each image's own mIoU, which torchmetrics calls MeanIoU; ``[N, K]`` to a number.

    It weighs a class by the images it occurs in and a pixel by the rarity of its class in its image, so it differs
    from the IoU over a data set, and the two are not comparable. Images without a labelled pixel do not count.
    """
    each = mean_iou(class_iou(right, labelled, predicted))
    return float(np.nanmean(each)) if not np.isnan(each).all() else float("nan")


def diagonal_counts(matrix: NDArray[np.integer]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Right, labelled and predicted pixels of each class.

    Args:
        matrix: ``[..., K, K + 1]``, rows labels, columns predictions, the last one those outside the class table.

    Returns:
        three int64 ``[..., K]``.
    """
    wide = matrix.astype(np.int64)
    right = np.diagonal(wide, axis1=-2, axis2=-1)
    return right.copy(), wide.sum(axis=-1), wide[..., :-1].sum(axis=-2)
