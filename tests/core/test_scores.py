"""Scores of an image: brute force, hand-made pictures, and pictures that break naive scores."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core import score_kernels as kernels
from calib.core.scores import (
    Counts,
    ScoreSettings,
    area_factor,
    is_bright,
    is_dark,
    is_flat,
    make_columns,
    reduce_luma,
    reduction,
)
from calib.types.data import Preprocess
from calib.types.scores import ScoreTable

SETTINGS = ScoreSettings()


def score(luma, ids=None, classes=0, preprocess=None, chosen=SETTINGS):
    """The columns of one picture, first row taken."""
    counts = Counts(1, classes)
    reduced = reduce_luma(np.ascontiguousarray(luma, np.uint8), chosen.working_pixels)
    counts.add_image(0, reduced, ids, chosen, preprocess)
    return {name: column[0] for name, column in make_columns(counts, chosen).items()}


def verdicts(luma):
    columns = {name: np.array([value]) for name, value in score(luma).items()}
    table = ScoreTable(("a",), columns, (), {})
    return bool(is_dark(table)[0]), bool(is_bright(table)[0]), bool(is_flat(table)[0])


def random_label(seed, height, width, classes, void, dtype=np.uint8):
    """Blobs and specks of classes and void."""
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, classes + 1, (height // 3 + 1, width // 4 + 1))
    ids = np.kron(coarse, np.ones((3, 4), int))[:height, :width]
    specks = rng.random((height, width)) < 0.1
    ids = np.where(specks, rng.integers(0, classes + 1, (height, width)), ids)
    return np.where(ids == classes, void, ids).astype(dtype)


def brute_label(ids, classes, factor, speck, small):
    by_class, by_area = np.zeros((3, classes), int), np.zeros(kernels.AREA_BINS, int)
    for number in range(classes):
        mask = (ids == number).astype(np.uint8)
        by_class[0, number] = mask.sum()
        count, _, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
        for area in stats[1:count, cv2.CC_STAT_AREA]:
            if area * factor >= speck:
                by_area[min(max(int(np.floor(np.log2(area * factor))), 0), kernels.AREA_BINS - 1)] += 1
                if area * factor < small:
                    by_class[1, number] += 1
                    by_class[2, number] += area
    pairs = [(ids[:, 1:], ids[:, :-1]), (ids[1:], ids[:-1])]
    labelled = [(a < classes) & (b < classes) for a, b in pairs]
    different = sum(int(((a != b) & both).sum()) for (a, b), both in zip(pairs, labelled, strict=True))
    return by_class, by_area, [sum(int(both.sum()) for both in labelled), different]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    height=st.integers(1, 40),
    width=st.integers(1, 70),
    classes=st.integers(1, 6),
    factor=st.sampled_from([0.25, 1.0, 3.5]),
)
def test_components_and_borders_equal_brute_force(seed, height, width, classes, factor):
    ids = random_label(seed, height, width, classes, 255)
    by_class, by_area, borders = brute_label(ids, classes, factor, 4.0, 40.0)
    found = np.zeros((3, classes), np.int64), np.zeros(kernels.AREA_BINS, np.int64), np.zeros(2, np.int64)
    kernels.measure_label(ids, factor, 4.0, 40.0, *found)
    np.testing.assert_array_equal(found[0], by_class)
    np.testing.assert_array_equal(found[1], by_area)
    assert found[2].tolist() == borders


def test_sixteen_bit_labels_count_the_same():
    ids = random_label(3, 50, 61, 5, 255)
    wide = np.where(ids == 255, 65535, ids).astype(np.uint16)
    results = []
    for each in (ids, wide):
        found = np.zeros((3, 5), np.int64), np.zeros(kernels.AREA_BINS, np.int64), np.zeros(2, np.int64)
        kernels.measure_label(each, 1.0, 4.0, 100.0, *found)
        results.append(found)
    for a, b in zip(*results, strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_spiral_is_one_component():
    ids = np.full((31, 31), 1, np.uint8)
    y, x, dy, dx = 15, 15, 0, 1
    for length in [step for n in range(1, 15) for step in (2 * n, 2 * n)]:
        for _ in range(length):
            if 0 <= y < 31 and 0 <= x < 31:
                ids[y, x] = 0
            y, x = y + dy, x + dx
        dy, dx = dx, -dy
    found = np.zeros((3, 2), np.int64), np.zeros(kernels.AREA_BINS, np.int64), np.zeros(2, np.int64)
    kernels.measure_label(ids, 1.0, 1.0, 1e9, *found)
    assert found[0][1, 0] == brute_label(ids, 2, 1.0, 1.0, 1e9)[0][1, 0] == 1


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), height=st.integers(1, 30), width=st.integers(1, 40))
def test_levels_and_edges_equal_brute_force(seed, height, width):
    luma = np.random.default_rng(seed).integers(0, 256, (height, width)).astype(np.uint8)
    levels, edges = np.zeros(256, np.int64), np.zeros(4, np.int64)
    kernels.measure_picture(luma, 900, levels, edges, np.zeros((32, 32)))
    np.testing.assert_array_equal(levels, np.bincount(luma.reshape(-1), minlength=256))
    wide = luma.astype(np.int64)
    middle = wide[1:-1, 1:-1]
    bend = wide[:-2, 1:-1] + wide[2:, 1:-1] + wide[1:-1, :-2] + wide[1:-1, 2:] - 4 * middle
    slope = (wide[2:, 1:-1] - wide[:-2, 1:-1]) ** 2 + (wide[1:-1, 2:] - wide[1:-1, :-2]) ** 2
    assert edges[:3].tolist() == [(slope >= 900).sum(), bend.sum(), (bend**2).sum()]


def test_wide_pictures_do_not_overflow():
    luma = np.tile(np.array([[0, 255], [255, 0]], np.uint8), (2, 3000))
    assert kernels.measure_edges(luma, 1)[2] == 2 * (luma.shape[1] - 2) * 1020**2


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (32, 32), (33, 70), (180, 240)])
def test_block_means_are_exact_areas(size):
    luma = np.random.default_rng(1).integers(0, 256, size).astype(np.uint8)
    means = np.zeros((32, 32))
    kernels.average_blocks(luma, means)
    fine = np.kron(luma.astype(float), np.ones((32, 32)))
    expected = fine.reshape(32, size[0], 32, size[1]).mean(axis=(1, 3))
    np.testing.assert_allclose(means, expected, atol=1e-9)


@pytest.mark.parametrize("shift", [0, 1, 2])
def test_dark_pixels_are_counted_inside_each_class(shift):
    rng = np.random.default_rng(5)
    ids = random_label(5, 41, 58, 4, 255)
    luma = rng.integers(0, 90, (41 >> shift, 58 >> shift)).astype(np.uint8)
    found = np.zeros((2, 4), np.int64)
    kernels.count_dark(ids, luma, shift, 32, found)
    step, middle = 1 << shift, (1 << shift) >> 1
    grid = ids[middle::step, middle::step][: luma.shape[0], : luma.shape[1]][::2, ::2]
    rows = luma[::2, ::2]
    for number in range(4):
        assert found[0, number] == (grid == number).sum()
        assert found[1, number] == ((grid == number) & (rows < 32)).sum()


def test_scores_of_a_hand_made_picture():
    luma = np.full((40, 50), 100)
    luma[:10] = 10
    luma[30:, :5] = 255
    ids = np.zeros((40, 50), np.uint8)
    ids[:10] = 1
    ids[20:23, 20:23] = 2
    ids[35:, 40:] = 255
    found = score(luma, ids, 3)
    assert found["dark_share"] == pytest.approx(0.25)
    assert found["bright_share"] == pytest.approx(50 / 2000)
    assert found["luma_mean"] == pytest.approx(luma.mean(), rel=1e-6)
    assert found["contrast"] == pytest.approx(luma.std() / 127.5, rel=1e-6)
    assert (found["luma_p05"], found["luma_p50"], found["luma_p95"]) == (10, 100, 100)
    np.testing.assert_allclose(found["class_dark_share"], [0, 1, 0], atol=1e-6)
    assert found["label_share"] == pytest.approx(1950 / 2000)
    np.testing.assert_allclose(found["class_share"], [1441 / 1950, 500 / 1950, 9 / 1950], rtol=1e-5)
    assert found["class_small_count"].tolist() == [0, 1, 1]
    assert found["object_areas"].sum() == 3


def test_a_class_that_is_absent_has_no_dark_share():
    found = score(np.full((8, 8), 9), np.zeros((8, 8), np.uint8), 2)
    assert found["class_dark_share"][0] == 1
    assert np.isnan(found["class_dark_share"][1])


def test_without_label_image_scores_serve():
    found = score(np.full((8, 8), 9))
    assert np.isnan(found["boundary_density"])
    assert np.isnan(found["small_share"])
    assert not found["labelled"]
    assert found["dark_share"] == 1
    assert found["class_share"].shape == (0,)


def test_a_label_that_is_all_void_gives_zeros():
    found = score(np.full((8, 8), 99), np.full((8, 8), 255, np.uint8), 2)
    assert found["labelled"]
    assert found["label_share"] == 0
    assert found["class_share"].tolist() == [0, 0]
    assert found["boundary_density"] == 0


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (2, 2)])
def test_tiny_pictures(size):
    found = score(np.full(size, 77), np.zeros(size, np.uint8), 1)
    assert found["luma_mean"] == 77
    assert found["edge_density"] == 0
    assert found["class_share"].tolist() == [1]


def test_small_is_relative_to_network_input():
    ids = np.zeros((100, 100), np.uint8)
    ids[10:60, 10:60] = 1
    assert score(np.full((100, 100), 99), ids, 2)["class_small_count"][1] == 0
    half = Preprocess("rgb", (50, 50), 1.0, (0.0,), (1.0,))
    assert score(np.full((100, 100), 99), ids, 2, half)["class_small_count"][1] == 1


@pytest.mark.parametrize(("fit", "factor"), [("stretch", 0.5 * 1.0), ("letterbox", 0.25), ("crop", 1.0)])
def test_area_factor_follows_the_fit(fit, factor):
    preprocess = Preprocess("rgb", (50, 200), 1.0, (0.0,), (1.0,), fit=fit)
    assert area_factor((100, 200), preprocess) == pytest.approx(factor)
    assert area_factor((100, 200), None) == 1


@pytest.mark.parametrize(
    ("size", "shift"), [((10, 10), 0), ((256, 512), 0), ((360, 480), 1), ((1024, 2048), 2), ((1, 1 << 20), 0)]
)
def test_pictures_are_reduced_to_the_working_size(size, shift):
    assert reduction(size, 1 << 17) == shift


def test_reducing_averages_whole_blocks():
    luma = np.random.default_rng(0).integers(0, 256, (10, 13)).astype(np.uint8)
    expected = luma[:8, :12].reshape(2, 4, 3, 4).mean(axis=(1, 3))
    reduced = reduce_luma(luma, 9)
    assert (reduced.size, reduced.shift) == ((10, 13), 2)
    np.testing.assert_allclose(reduced.pixels, expected, atol=0.51)


def noise(mean, deviation, seed=0):
    values = np.random.default_rng(seed).normal(mean, deviation, (120, 160))
    return np.clip(np.round(values), 0, 255)


def headlights():
    luma = noise(10, 3)
    luma[70:80, 40:50] = luma[70:80, 100:110] = 255
    return luma


@pytest.mark.parametrize(
    ("name", "luma", "dark", "bright", "flat"),
    [
        ("black (A2-8)", np.zeros((120, 160)), True, False, True),
        ("white", np.full((120, 160), 255), False, True, True),
        ("gray", np.full((120, 160), 128), False, False, True),
        ("lens cap with noise", noise(4, 2), True, False, True),
        ("night with headlights", headlights(), True, False, False),
        ("overexposed street", np.clip(noise(250, 40), 0, 255), False, True, False),
        ("fog", noise(180, 12), False, False, False),
        ("day", noise(110, 50), False, False, False),
    ],
)
def test_verdicts(name, luma, dark, bright, flat):
    assert verdicts(luma) == (dark, bright, flat), name


def test_input_may_be_read_only():
    luma, ids = np.full((40, 40), 50, np.uint8), np.zeros((40, 40), np.uint8)
    luma.flags.writeable = ids.flags.writeable = False
    assert score(luma, ids, 1)["luma_mean"] == 50
