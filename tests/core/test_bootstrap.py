"""Intervals: they cover what they promise to, and know nothing of order, threads or shared images."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.bootstrap import Counts, compare, draw, images_to_see, intervals, resampled_iou
from calib.core.metrics import class_iou

CLASSES, PIXELS = 3, 400
SHARES = np.array([0.6, 0.3, 0.1])


def simulate(rng: np.random.Generator, images: int, loss: float) -> tuple[Counts, Counts]:
    """Images of unlike content and difficulty under two networks; the second gets ``loss`` more pixels wrong."""
    content = rng.dirichlet(SHARES * 8, images)
    labelled = np.array([rng.multinomial(PIXELS, share) for share in content])
    hard = rng.beta(6, 2, (images, 1)) * np.array([0.98, 0.9, 0.8])
    first = rng.binomial(labelled, hard)
    lost = rng.binomial(first, loss)
    both = []
    for right in (first, first - lost):
        wrong = labelled - right
        predicted = right + np.roll(wrong, 1, axis=1)  # the errors of a class go to its neighbour
        both.append(Counts(right.astype(np.int64), labelled.astype(np.int64), predicted.astype(np.int64)))
    return both[0], both[1]


def delta(first: Counts, second: Counts) -> float:
    return 100 * float(second.iou().mean() - first.iou().mean())


@pytest.mark.parametrize("images", [30, 120])
def test_the_95_percent_interval_covers_the_true_difference(images: int) -> None:
    rng = np.random.default_rng(images)
    truth = delta(*simulate(rng, 200_000, 0.02))
    covered = 0
    for trial in range(1000):
        first, second = simulate(rng, images, 0.02)
        found = compare(first, second, 400, trial).mean
        assert found.low is not None
        assert found.high is not None
        covered += found.low <= truth <= found.high
    assert 920 <= covered <= 980


def test_two_copies_of_one_network_differ_by_nothing() -> None:
    first, _ = simulate(np.random.default_rng(1), 40, 0.1)
    found = compare(first, first, 500, 0)
    assert (found.mean.value, found.mean.low, found.mean.high, found.mean.error) == (0, 0, 0, 0)
    assert not found.mean.significant
    assert images_to_see(found.mean, 40) == 1
    assert all(item is not None and item.value == item.low == item.high == 0 for item in found.classes)


def test_a_resample_is_the_iou_of_the_drawn_images() -> None:
    first, _ = simulate(np.random.default_rng(2), 9, 0.1)
    drawn = np.concatenate(list(draw(9, 20, 5)))
    assert drawn.sum(axis=1).tolist() == [9] * 20
    by_hand = [
        class_iou(*((row[:, None] * part).sum(axis=0) for part in (first.right, first.labelled, first.predicted)))
        for row in drawn
    ]
    assert np.array_equal(resampled_iou(first, 20, 5), by_hand)


def test_grouped_images_are_drawn_as_wholes() -> None:
    """Copies of an image add nothing: the interval over groups is that over the originals."""
    first, second = simulate(np.random.default_rng(3), 12, 0.05)
    groups = np.repeat(np.arange(12), 10)

    def repeated(counts: Counts) -> Counts:
        return Counts(*(np.repeat(part, 10, axis=0) for part in (counts.right, counts.labelled, counts.predicted)))

    single = compare(first, second, 300, 7).mean
    grouped = compare(repeated(first).grouped(groups), repeated(second).grouped(groups), 300, 7).mean
    naive = compare(repeated(first), repeated(second), 300, 7).mean
    assert (grouped.low, grouped.high) == pytest.approx((single.low, single.high))
    assert naive.high - naive.low < (single.high - single.low) / 2


def test_few_images_give_no_interval() -> None:
    first, second = simulate(np.random.default_rng(4), 4, 0.1)
    found = compare(first, second, 200, 0)
    assert (found.mean.low, found.mean.high, found.mean.error) == (None, None, None)
    assert not found.mean.significant
    assert images_to_see(found.mean, 4) is None


def test_a_class_that_few_images_hold_gets_none_and_an_absent_one_is_none() -> None:
    labelled = np.zeros((20, 3), np.int64)
    labelled[:, 0] = 100
    labelled[:4, 1] = 10
    counts = Counts(labelled // 2, labelled, labelled)
    iou = counts.iou()
    found = intervals(iou, float(np.nanmean(iou)), resampled_iou(counts, 200, 0), counts)
    assert found.classes[0].low is not None
    assert found.classes[1].low is None
    assert found.classes[1].value == pytest.approx(1 / 3)
    assert found.classes[2] is None


def test_no_images_at_all() -> None:
    empty = Counts(*(np.zeros((0, 3), np.int64) for _ in range(3)))
    assert np.isnan(empty.iou()).all()
    assert compare(empty, empty, 100, 0).mean.low is None


def test_the_images_needed_shrink_with_the_square_of_the_difference() -> None:
    first, second = simulate(np.random.default_rng(5), 60, 0.05)
    found = compare(first, second, 1000, 0).mean
    assert found.error is not None
    small, large = images_to_see(found, 60, 0.1), images_to_see(found, 60, 1.0)
    assert small == pytest.approx(100 * large, rel=0.5)
    assert small == pytest.approx(60 * (2.8016 * found.error / 0.1) ** 2, abs=1)
