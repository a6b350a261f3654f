"""Racing: who leaves when, in which order images come, how units are ranked."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.core.bootstrap import Counts, compare
from calib.core.sensitivity.losses import Comparison, Draws, below
from calib.core.sensitivity.racing import Standing, balanced_order, rank, round_ends, settled


@pytest.mark.parametrize(
    ("images", "ends"), [(1, (1,)), (5, (5,)), (6, (5, 6)), (20, (5, 10, 20)), (64, (5, 10, 20, 40, 64))]
)
def test_rounds_double(images: int, ends: tuple[int, ...]):
    assert round_ends(images) == ends


def test_a_unit_leaves_when_it_cannot_matter_or_cannot_reach_the_top():
    assert settled(Standing(0.01, 0.09, None), 0.1) == "resolution"
    assert settled(Standing(0.01, 0.1, None), 0.1) is None
    assert settled(Standing(0.4, 0.6, True), 0.1) == "top"
    assert settled(Standing(0.4, 0.6, False), 0.1) is None
    assert settled(Standing(0.0, None, None), 0.1) is None  # too few images to tell


@given(st.integers(1, 60), st.integers(0, 4), st.integers(0, 5))
def test_every_beginning_holds_about_each_slices_share(count: int, slices: int, seed: int):
    rng = np.random.default_rng(seed)
    masks = [rng.random(count) < share for share in rng.uniform(0.1, 0.9, slices)]
    order = balanced_order(masks, count, seed)
    assert sorted(order.tolist()) == list(range(count))
    np.testing.assert_array_equal(order, balanced_order(masks, count, seed))
    if len(masks) == 1:
        running = np.cumsum(masks[0][order]) - masks[0].mean() * np.arange(1, count + 1)
        assert np.abs(running).max() <= 1.0


def test_the_order_depends_on_the_seed():
    orders = {tuple(balanced_order([], 12, seed).tolist()) for seed in range(4)}
    assert len(orders) == 4


def test_losses_that_may_matter_come_first_by_loss_then_the_rest_by_flips():
    losses = [0.02, 0.5, 0.01, 0.3, None, -0.2]
    highs = [0.05, 0.9, 0.03, None, None, 0.15]
    flips = [0.001, 0.2, 0.004, 0.1, 0.5, 0.02]
    assert rank(losses, highs, flips, 0.1) == [1, 3, 5, 4, 2, 0]


def counts(seed: int, images: int = 12, classes: int = 4, hurt: float = 0.0) -> Counts:
    rng = np.random.default_rng(3)
    labelled = rng.integers(50, 500, (images, classes))
    right = (labelled * rng.uniform(0.6, 0.9, labelled.shape)).astype(np.int64)
    rng = np.random.default_rng(seed)
    right = np.maximum(right - (labelled * hurt * rng.random(labelled.shape)).astype(np.int64), 0)
    return Counts(right, labelled, labelled.copy())


def test_losses_are_the_differences_that_evaluation_states():
    base, other = counts(0), counts(1, hurt=0.1)
    own = Comparison(base, Draws(12, 500, 7)).losses(other)
    theirs = compare(base, other, 500, 7)
    assert own.mean.value == pytest.approx(-theirs.mean.value)
    assert (own.mean.low, own.mean.high) == pytest.approx((-theirs.mean.high, -theirs.mean.low))
    for mine, wanted in zip(own.classes, theirs.classes, strict=True):
        assert mine.value == pytest.approx(-wanted.value)
    mean, classes = Comparison(base, Draws(12, 500, 7)).mean_loss(other)
    assert mean == own.mean
    np.testing.assert_allclose(classes, [item.value for item in own.classes])


def test_many_images_are_drawn_in_chunks_with_the_same_result():
    base, other = counts(0, images=3000), counts(1, images=3000, hurt=0.1)
    draws = Draws(3000, 1500, 2)
    assert draws._weights is None
    assert Comparison(base, draws).losses(other).mean.value == pytest.approx(-compare(base, other, 1500, 2).mean.value)


def test_below_tells_what_is_better_beyond_chance():
    leader = counts(1, hurt=0.3)
    assert below([counts(2, hurt=0.02), counts(1, hurt=0.3), counts(4, hurt=0.6)], leader, Draws(12, 500, 0)) == [
        True,
        False,
        False,
    ]
    few = counts(1, images=3, hurt=0.3)
    assert below([counts(2, images=3)], few, Draws(3, 500, 0)) == [None]
