"""Perceptual hashes and thumbnails: which pictures look alike, whatever their size and compression."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

THUMBNAIL = 16
"""Side of the thumbnail kept of each picture."""

COPY_DISTANCE = 6
"""Hamming distance up to which two pictures may be copies of each other; the thumbnails decide."""

COPY_DIFFERENCE = 0.03
"""Largest :func:`thumbnail_difference` of a copy that was re-encoded or resized. See ``docs/scores.md``."""

NEAR_DISTANCE = 4
"""Hamming distance up to which two pictures count as near-duplicates when their light agrees too."""

NEAR_LIGHT = 8.0
"""Largest difference of mean luma (levels of 0..255) between near-duplicates."""

CHUNK = 1 << 22


def perceptual_hashes(blocks: NDArray[np.floating]) -> NDArray[np.uint64]:
    """Hash pictures by the signs of their 63 lowest frequencies (the DCT hash of Zauner, 2010).

    Bit ``8 * u + v`` (from the top) tells whether coefficient ``(u, v)`` of the type-II DCT exceeds the median of
    the 63. The constant term's bit is 0, so that the hash ignores brightness; contrast it ignores by its nature.

    Args:
        blocks: ``[N, S, S]`` mean luma of equal areas.

    Returns:
        uint64 ``[N]``; pictures without any structure get 0.
    """
    side = blocks.shape[1]
    waves = np.cos(np.pi * np.outer(np.arange(8), 2 * np.arange(side) + 1) / (2 * side))
    # One picture a product: larger ones start threads of their own, which wait longer for each other than they work.
    across = blocks.astype(np.float64) @ waves.T
    along = across.transpose(0, 2, 1) @ waves.T
    spectrum = np.round(along.transpose(0, 2, 1).reshape(-1, 64), 6)
    median = np.sort(spectrum[:, 1:], axis=1)[:, 31:32]  # ten times as quick as np.median
    bits = spectrum > median
    bits[:, 0] = False
    return np.packbits(bits, axis=1).view(">u8").ravel().astype(np.uint64)


def make_thumbnails(blocks: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Shrink block means to uint8 ``[N, THUMBNAIL**2]``, row by row.

    Args:
        blocks: ``[N, S, S]`` mean luma, ``S`` a multiple of ``THUMBNAIL``.
    """
    step = blocks.shape[1] // THUMBNAIL
    rows = np.sum([blocks[:, offset::step] for offset in range(step)], axis=0)
    sums = np.sum([rows[:, :, offset::step] for offset in range(step)], axis=0)
    return np.asarray(np.round(sums / step**2), np.uint8).reshape(len(blocks), THUMBNAIL**2)


def thumbnail_difference(a: NDArray[np.uint8], b: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Root mean square difference of thumbnails, each brought to mean 0 and deviation 1 first.

    Args:
        a: uint8 ``[M, P]``.
        b: uint8 ``[M, P]``.

    Returns:
        float64 ``[M]``: 0 for the same picture, about 1.4 for unrelated ones.
    """
    return np.asarray(np.sqrt(np.mean((_normalise(a) - _normalise(b)) ** 2, axis=1)))


def _normalise(thumbnails: NDArray[np.uint8]) -> NDArray[np.float64]:
    values = thumbnails.astype(np.float64)
    values -= values.mean(axis=1, keepdims=True)
    return np.asarray(values / (values.std(axis=1, keepdims=True) + 1.0))


def close_pairs(a: NDArray[np.uint64], b: NDArray[np.uint64], distance: int) -> NDArray[np.int64]:
    """Find all pairs of hashes at most ``distance`` bits apart.

    Args:
        a: uint64 ``[M]``.
        b: uint64 ``[N]``.
        distance: largest Hamming distance, 0..64.

    Returns:
        int64 ``[pairs, 2]``: position in ``a``, position in ``b``, ascending.
    """
    found = [np.empty((0, 2), np.int64)]
    rows = max(CHUNK // max(len(b), 1), 1)
    for start in range(0, len(a), rows):
        near = np.bitwise_count(a[start : start + rows, None] ^ b[None, :]) <= distance
        pairs = np.argwhere(near)
        pairs[:, 0] += start
        found.append(pairs)
    return np.concatenate(found)


def find_duplicates(
    hashes: NDArray[np.uint64], light: NDArray[np.floating], distance: int, tolerance: float = NEAR_LIGHT
) -> NDArray[np.bool_]:
    """Mark each picture that looks like an earlier one that is kept.

    Light decides too, because the hash ignores brightness: one scene by day and by night are no duplicates.

    Args:
        hashes: uint64 ``[N]``, in order of preference.
        light: ``[N]`` mean luma, 0..255.
        distance: largest Hamming distance of a near-duplicate.
        tolerance: largest difference of mean luma of a near-duplicate.

    Returns:
        bool ``[N]``: True where a kept picture is within reach.
    """
    dropped = np.zeros(len(hashes), bool)
    order = np.argsort(light, kind="stable")
    sorted_hashes, sorted_light = hashes[order], light[order]
    lowest = np.searchsorted(sorted_light, light - tolerance, "left")
    highest = np.searchsorted(sorted_light, light + tolerance, "right")
    for row in range(len(hashes)):
        if dropped[row]:
            continue
        window = slice(lowest[row], highest[row])  # only pictures of the same light are compared
        near = order[window][np.bitwise_count(sorted_hashes[window] ^ hashes[row]) <= distance]
        dropped[near[near > row]] = True
    return dropped
