"""What is counted of an image under a switched network: class counts, flips, and the noise on the logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.jit import compiled

RIGHT, PREDICTED = 0, 1
"""Rows of a class count."""
WHOLE, IN_DARK = 0, 1
"""Planes: all pixels, and the dark ones."""
FLIPPED, HARMED, HELPED = 0, 1, 2
"""Slots of the flip counts: class differs from the base's; the base had it right; it is right now."""
SIGNAL, NOISE = 0, 1
"""Slots of the powers: sum of squares of the base's scores, and of the differences from them."""

LANES = 16
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


def measure_noise(scores: NDArray[Any], base: NDArray[Any]) -> NDArray[np.float64]:
    """Sum the squares of the base's scores and of the differences from them, float64 ``[2]``.

    What is not finite in either is left out.

    Args:
        scores: any float array.
        base: of the same shape.
    """
    found, wanted = (np.ascontiguousarray(item, np.float32).ravel() for item in (scores, base))
    powers = np.zeros(2, np.float64)
    _powers(found, wanted, powers)
    if not np.isfinite(powers).all():
        known = np.isfinite(found) & np.isfinite(wanted)
        _powers(found[known], wanted[known], powers)
    return powers


@compiled
def _powers(scores: Any, base: Any, powers: Any) -> None:
    """Sum in lanes, always the same ones: vector instructions, and a result that depends on no machine."""
    signal, noise = np.zeros(LANES, np.float64), np.zeros(LANES, np.float64)
    even = scores.size - scores.size % LANES
    for start in range(0, even, LANES):
        for lane in range(LANES):
            wanted = np.float64(base[start + lane])
            gap = np.float64(scores[start + lane]) - wanted
            signal[lane] += wanted * wanted
            noise[lane] += gap * gap
    for place in range(even, scores.size):
        wanted = np.float64(base[place])
        signal[0] += wanted * wanted
        noise[0] += (np.float64(scores[place]) - wanted) ** 2
    powers[SIGNAL], powers[NOISE] = signal.sum(), noise.sum()
