"""Perceptual hashes and thumbnails: copies stay close, other pictures do not."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from scipy.fft import dctn

from calib.core.phash import (
    COPY_DIFFERENCE,
    COPY_DISTANCE,
    close_pairs,
    find_duplicates,
    make_thumbnails,
    perceptual_hashes,
    thumbnail_difference,
)
from calib.core.scores import Counts, ScoreSettings, make_columns, reduce_luma


def scene(seed, size=(240, 320)):
    """A smooth random picture with structure at several scales."""
    rng = np.random.default_rng(seed)
    picture = np.zeros(size)
    for cells in (3, 6, 12, 40):
        coarse = rng.normal(0, 1, (cells, cells)).astype(np.float32)
        picture += cv2.resize(coarse, size[::-1], interpolation=cv2.INTER_CUBIC) * 30
    return np.clip(picture + 120, 0, 255).astype(np.uint8)


def fingerprint(pictures):
    counts = Counts(len(pictures), 0)
    for row, picture in enumerate(pictures):
        counts.add_image(row, reduce_luma(np.ascontiguousarray(picture), 1 << 17), None, ScoreSettings(), None)
    columns = make_columns(counts, ScoreSettings())
    return columns["phash"], columns["thumbnail"]


def test_hash_is_the_median_split_of_the_lowest_frequencies():
    blocks = np.random.default_rng(0).uniform(0, 255, (3, 32, 32))
    for block, found in zip(blocks, perceptual_hashes(blocks), strict=True):
        low = dctn(block, type=2)[:8, :8]
        # scipy's DCT carries a factor 2 an axis, which does not move the median split
        bits = (low > np.median(low.reshape(-1)[1:])).reshape(-1)
        bits[0] = False
        assert f"{int(found):064b}" == "".join("01"[int(bit)] for bit in bits)


@pytest.mark.parametrize(
    "change",
    [
        lambda p: cv2.imdecode(cv2.imencode(".jpg", p, [1, 30])[1], 0),
        lambda p: cv2.resize(p, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA),
        lambda p: cv2.resize(p, (500, 300), interpolation=cv2.INTER_CUBIC),
        lambda p: cv2.resize(p, (200, 200), interpolation=cv2.INTER_AREA),
    ],
    ids=["jpeg", "half", "enlarged", "square"],
)
def test_copies_are_recognised(change):
    originals = [scene(seed) for seed in range(8)]
    (hashes, thumbs), (others, other_thumbs) = fingerprint(originals), fingerprint([change(p) for p in originals])
    assert (np.bitwise_count(hashes ^ others) <= COPY_DISTANCE).all()
    assert (thumbnail_difference(thumbs, other_thumbs) <= COPY_DIFFERENCE).all()


def test_other_pictures_are_far():
    hashes, thumbs = fingerprint([scene(seed) for seed in range(12)])
    assert len(close_pairs(hashes, hashes, COPY_DISTANCE)) == 12
    assert (thumbnail_difference(thumbs[1:], thumbs[:-1]) > 0.3).all()


def test_close_pairs_equal_brute_force():
    rng = np.random.default_rng(2)
    a, b = rng.integers(0, 2**63, 40, dtype=np.uint64), rng.integers(0, 2**63, 50, dtype=np.uint64)
    b[7], b[8] = a[3], a[3] ^ np.uint64(0b101)
    expected = [[i, j] for i in range(40) for j in range(50) if bin(int(a[i]) ^ int(b[j])).count("1") <= 22]
    assert close_pairs(a, b, 22).tolist() == expected
    assert [3, 7] in expected
    assert close_pairs(a[:0], b, 22).shape == (0, 2)


def test_duplicates_keep_the_first_and_heed_light():
    hashes = np.array([0, 1, 0b11111111, 0, 0xFFFF], np.uint64)
    light = np.array([50.0, 52.0, 50.0, 150.0, 50.0])
    assert find_duplicates(hashes, light, 2).tolist() == [False, True, False, False, False]


def test_thumbnails_are_means_of_blocks():
    blocks = np.arange(32 * 32, dtype=float).reshape(1, 32, 32) / 8
    assert make_thumbnails(blocks)[0, 0] == round(blocks[0, :2, :2].mean())
    assert make_thumbnails(blocks).shape == (1, 256)


def test_flat_pictures_hash_to_zero():
    hashes, _ = fingerprint([np.full((64, 64), value, np.uint8) for value in (0, 128, 255)])
    assert hashes.tolist() == [0, 0, 0]
