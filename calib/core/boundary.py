"""Boundary IoU: how well the outlines agree, where IoU of large regions hardly moves.

Source: Cheng, Girshick, Dollár, Berg, Kirillov: Boundary IoU: Improving Object-Centric Image Segmentation Evaluation,
CVPR 2021 (arXiv:2103.16562). For each class ``|(Gd ∩ G) ∩ (Pd ∩ P)| / |(Gd ∩ G) ∪ (Pd ∩ P)|``, where ``G`` and ``P``
are the pixels of the class in label and prediction, and ``Gd``, ``Pd`` the pixels at most ``d`` from their boundaries;
``d`` is 2 % of the image diagonal, and the image's border is a boundary, as in the authors' own code, which erodes
with a 3 x 3 kernel ``d`` times. Here intersections and unions are summed over the data set before they are divided.

A pixel survives that erosion when the ``(2d + 1) x (2d + 1)`` window around it holds one class only. So the smallest
and the largest id of the window answer for all classes at once, whatever their number.

Void pixels count as a class of their own in the label, and the prediction is void where the label is: the outline of
an unlabelled area is the same in both and costs nothing.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

DILATION = 0.02
"""Width of the band relative to the image diagonal; the paper's value."""


def band_width(size: tuple[int, int], dilation: float = DILATION) -> int:
    """Width ``d`` of the boundary band in pixels, at least 1, for an image of ``(height, width)``."""
    return max(1, round(dilation * float(np.hypot(*size))))


def window_range(ids: NDArray[Any], distance: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Smallest and largest id in the window of ``2 * distance + 1`` pixels a side around each pixel.

    Args:
        ids: uint8 or uint16 ``[H, W]``; outside the image lies the dtype's largest value.
        distance: in pixels, at least 1.
    """
    side = 2 * distance + 1
    window = np.ones((side, side), np.uint8)
    outside = int(np.iinfo(ids.dtype).max)
    low: NDArray[Any] = cv2.erode(ids, window)
    high: NDArray[Any] = cv2.dilate(ids, window, borderType=cv2.BORDER_CONSTANT, borderValue=outside)
    return low, high


def boundary_band(ids: NDArray[Any], distance: int) -> NDArray[np.bool_]:
    """Mark the pixels at most ``distance`` from a boundary of their class, bool ``[H, W]``."""
    low, high = window_range(ids, distance)
    return np.asarray(low != high)


def boundary_iou(
    label_band: NDArray[np.int64], predicted_band: NDArray[np.int64], shared: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Divide; NaN where a class has no boundary in the label.

    Args:
        label_band: int64 ``[..., K]`` pixels of each class in the label's band.
        predicted_band: int64 ``[..., K]`` pixels of each class in the prediction's band.
        shared: int64 ``[..., K]`` pixels in both.

    Returns:
        float64 ``[..., K]`` in 0..1.
    """
    union = label_band + predicted_band - shared
    return np.where(label_band > 0, shared / np.maximum(union, 1), np.nan)
