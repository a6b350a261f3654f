"""What is counted of an image under a switched network: class counts, flips, and the noise on the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled, compiled_loosely

RIGHT, PREDICTED = 0, 1
"""Rows of a class count."""
WHOLE, IN_DARK = 0, 1
"""Planes: all pixels, and the dark ones."""
FLIPPED, HARMED, HELPED = 0, 1, 2
"""Slots of the flip counts: class differs from the base's; the base had it right; it is right now."""
SIGNAL, NOISE = 0, 1
"""Slots of the powers: sum of squares of the base's scores, and of the differences from them."""

BASE, TOGETHER = -1, -2
"""Numbers of the base network and of the one with every unit switched, beside those of the units."""


@dataclass(frozen=True)
class ImageCounts:
    """The counts of one image under one network.

    Attributes:
        classes: int64 ``[2, 2, K]``: right and predicted pixels by class, of all scored pixels and of the dark ones.
        flips: int64 ``[3]``: pixels of another class than under the base network, void ones too; those of them that
            the base had right; those that are right now.
        flipped: int64 ``[K]``: flipped pixels by the label's class.
        powers: float64 ``[2]``: sums of squares over the scores; zeros where the output holds no scores.
    """

    classes: NDArray[np.int64]
    flips: NDArray[np.int64]
    flipped: NDArray[np.int64]
    powers: NDArray[np.float64]


@dataclass(frozen=True)
class LabelCounts:
    """What is counted of a label: int64 ``[2, K]`` pixels by class, of all and of the dark ones; and pixels seen."""

    labelled: NDArray[np.int64]
    seen: int


@dataclass(frozen=True)
class ImageRecord:
    """Everything counted of one image.

    Attributes:
        key: the image.
        label: counts that no network changes.
        networks: counts by number: :data:`BASE`, :data:`TOGETHER`, and the units'.
    """

    key: str
    label: LabelCounts
    networks: dict[int, ImageCounts]


def count_label(label: NDArray[Any], dark: NDArray[np.bool_], classes: int) -> LabelCounts:
    """Count a label.

    Args:
        label: unsigned ``[H, W]`` train ids; ``classes`` and above is void.
        dark: bool ``[H, W]``.
        classes: number of classes.
    """
    known = label < classes
    found = np.stack([np.bincount(label[mask].ravel(), minlength=classes)[:classes] for mask in (known, known & dark)])
    return LabelCounts(found.astype(np.int64), int(label.size))


def count_image(
    label: NDArray[Any], dark: NDArray[np.bool_], predicted: NDArray[Any], base: NDArray[Any], classes: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Count a class map against its label and against the base network's: ``classes``, ``flips`` and ``flipped``.

    Args:
        label: unsigned ``[H, W]`` train ids; ``classes`` and above is void.
        dark: bool ``[H, W]``.
        predicted: unsigned ``[H, W]``.
        base: unsigned ``[H, W]``, class map of the base network.
        classes: number of classes.
    """
    by_class = np.zeros((2, 2, classes), np.int64)
    flips, flipped = np.zeros(3, np.int64), np.zeros(classes, np.int64)
    _count(label, dark, predicted, base, by_class, flips, flipped)
    return by_class, flips, flipped


@compiled
def _count(label: Any, dark: Any, predicted: Any, base: Any, by_class: Any, flips: Any, flipped: Any) -> None:
    classes = flipped.size
    for y in range(label.shape[0]):
        for x in range(label.shape[1]):
            truth, guess, before = np.int64(label[y, x]), np.int64(predicted[y, x]), np.int64(base[y, x])
            shade = np.int64(dark[y, x])
            if truth < classes:
                if guess < classes:
                    by_class[0, PREDICTED, guess] += 1
                    by_class[1, PREDICTED, guess] += shade
                if guess == truth:
                    by_class[0, RIGHT, guess] += 1
                    by_class[1, RIGHT, guess] += shade
            if guess != before:
                flips[FLIPPED] += 1
                if truth < classes:
                    flipped[truth] += 1
                    flips[HARMED] += np.int64(before == truth)
                    flips[HELPED] += np.int64(guess == truth)


def noise_power(scores: NDArray[Any], base: NDArray[Any]) -> float:
    """Sum the squares of the differences of two arrays of scores, what is not finite in either left out.

    Rows are summed in float32 and added up in float64: the relative error stays below 1e-4, that is 0.0004 dB.

    Args:
        scores: any float array.
        base: of the same shape.
    """
    found, wanted = (np.asarray(item, np.float32).reshape(-1, item.shape[-1]) for item in (scores, base))
    power = _sum_squares(found, wanted)
    if np.isfinite(power):
        return float(power)
    with np.errstate(invalid="ignore"):  # infinity less infinity
        gap = (found.astype(np.float64) - wanted).ravel()
    return float(np.square(gap[np.isfinite(gap)]).sum())


@compiled_loosely
def _sum_squares(scores: Any, base: Any) -> Any:
    total = np.float64(0)
    for row in range(scores.shape[0]):
        found, wanted = scores[row], base[row]
        part = np.float32(0)
        for place in range(found.size):
            gap = found[place] - wanted[place]
            part += gap * gap
        total += np.float64(part)
    return total
