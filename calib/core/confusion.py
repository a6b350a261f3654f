"""Counting a predicted class map against its label: confusion matrices, boundaries, flips, in one pass.

A confusion matrix here has one row a class and one column more than classes: the last counts predictions outside the
class table (a foreign id, or no prediction because of a NaN). Such a pixel is a miss of its label's class and a false
positive of none, so that every scored pixel is in the matrix exactly once.

All counts are int64, and no result depends on the order of pixels, images or threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled

DARK, BAND = 1, 2
"""Bits of a pixel's marks: dark, and in the band along the label's boundaries."""

FLIPPED, BAND_FLIPPED, HARMED, HELPED = 0, 1, 2, 3
"""Slots of the flip counts."""


@compiled
def count_pixels(
    label: NDArray[Any],
    predicted: NDArray[Any],
    low: NDArray[Any],
    high: NDArray[Any],
    marks: NDArray[np.uint8],
    confusion: NDArray[np.int64],
    dark: NDArray[np.int64],
    boundary: NDArray[np.int64],
    parts: NDArray[np.int32],
    right: NDArray[np.int64],
) -> None:
    """Count one image; adds to what the arrays hold.

    Args:
        label: unsigned ``[H, W]`` train ids; ``K`` and above is void and not scored.
        predicted: ``[H, W]``; ``K`` and above is outside the class table.
        low: ``[H, W]`` smallest id in the window around each pixel of the prediction (void under void labels).
        high: the largest; a pixel lies in the prediction's boundary band where one of them is not its own id.
        marks: uint8 ``[H, W]`` bits ``DARK`` and ``BAND``.
        confusion: int64 ``[K, K + 1]``, rows are labels.
        dark: int64 ``[K, K + 1]``, the same over dark pixels alone.
        boundary: int64 ``[2, K]``: pixels of the predicted class in its band; those of them that are also of this
            class, and in the band, in the label.
        parts: int32 ``[H, W]`` number of the component of each pixel that is not void.
        right: int64 ``[n]`` right pixels of each component.
    """
    classes = confusion.shape[0]
    height, width = label.shape
    for y in range(height):
        truth, guess, smallest, largest, mark = label[y], predicted[y], low[y], high[y], marks[y]
        numbers = parts[y]
        for x in range(width):
            wanted = np.int64(truth[x])
            if wanted >= classes:
                continue
            found = min(np.int64(guess[x]), classes)
            confusion[wanted, found] += 1
            dark[wanted, found] += np.int64(mark[x] & DARK)
            right[numbers[x]] += np.int64(found == wanted)
            if found < classes and (smallest[x] != largest[x]):
                boundary[0, found] += 1
                boundary[1, found] += np.int64(found == wanted) & np.int64(mark[x] >> 1)


@compiled
def count_label(
    label: NDArray[Any], marks: NDArray[np.uint8], pixels: NDArray[np.int64], band: NDArray[np.int64]
) -> None:
    """Count what a label holds; adds to what the arrays hold.

    Args:
        label: unsigned ``[H, W]`` train ids; ``K`` and above is void.
        marks: uint8 ``[H, W]`` bits ``DARK`` and ``BAND``.
        pixels: int64 ``[3]``: void pixels; dark ones that are not void; those in the band, void ones too.
        band: int64 ``[K]``: pixels in the band by class.
    """
    classes = band.size
    height, width = label.shape
    void, dark, near = np.int64(0), np.int64(0), np.int64(0)
    for y in range(height):
        truth, mark = label[y], marks[y]
        for x in range(width):
            inside = np.int64(mark[x] >> 1)
            near += inside
            if truth[x] < classes:
                band[truth[x]] += inside
                dark += np.int64(mark[x] & DARK)
            else:
                void += 1
    pixels[0] += void
    pixels[1] += dark
    pixels[2] += near


@compiled
def count_flips(
    label: NDArray[Any],
    predicted: NDArray[Any],
    reference: NDArray[Any],
    marks: NDArray[np.uint8],
    totals: NDArray[np.int64],
    by_class: NDArray[np.int64],
) -> None:
    """Count the pixels whose class differs from the reference's, void ones too; adds to what the arrays hold.

    Args:
        label: unsigned ``[H, W]`` train ids; ``K`` and above is void.
        predicted: ``[H, W]`` class map.
        reference: ``[H, W]`` class map of the reference.
        marks: uint8 ``[H, W]``, bit ``BAND``.
        totals: int64 ``[4]``: flipped pixels; those in the band along the label's boundaries; those the reference had
            right (harmed); those that are right now (helped).
        by_class: int64 ``[K]`` flipped pixels by the label's class.
    """
    classes = by_class.size
    height, width = label.shape
    for y in range(height):
        truth, guess, before, mark = label[y], predicted[y], reference[y], marks[y]
        for x in range(width):
            if guess[x] == before[x]:
                continue
            totals[FLIPPED] += 1
            totals[BAND_FLIPPED] += np.int64((mark[x] & BAND) != 0)
            if truth[x] < classes:
                by_class[truth[x]] += 1
                totals[HARMED] += np.int64(before[x] == truth[x])
                totals[HELPED] += np.int64(guess[x] == truth[x])


def confusion_matrix(label: NDArray[Any], predicted: NDArray[Any], classes: int) -> NDArray[np.int64]:
    """Count one class map against its label.

    Args:
        label: unsigned ``[H, W]`` train ids; ``classes`` and above is void and not scored.
        predicted: unsigned ``[H, W]`` class map; ``classes`` and above is outside the class table.
        classes: number of classes ``K``.

    Returns:
        int64 ``[K, K + 1]``: rows are labels, columns predictions, the last one those outside the class table.

    Raises:
        ValueError: the shapes differ.
    """
    if label.shape != predicted.shape:
        raise ValueError(f"label {label.shape} and prediction {predicted.shape} differ in shape")
    matrix = np.zeros((classes, classes + 1), np.int64)
    marks = np.zeros(label.shape, np.uint8)
    boundary = np.zeros((2, classes), np.int64)
    whole = np.zeros(label.shape, np.int32)
    right = np.zeros(1, np.int64)
    count_pixels(label, predicted, predicted, predicted, marks, matrix, np.zeros_like(matrix), boundary, whole, right)
    return matrix
