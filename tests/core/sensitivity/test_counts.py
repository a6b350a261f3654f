"""Counts of a class map, against counting by hand."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.sensitivity.counts import FLIPPED, HARMED, HELPED, count_image, count_label, noise_power

CLASSES = 4


def maps(seed: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    label = rng.integers(0, CLASSES + 1, (13, 17)).astype(np.uint8)
    label[label == CLASSES] = 255
    return label, rng.random((13, 17)) < 0.3, *(rng.integers(0, CLASSES + 1, (2, 13, 17)).astype(np.uint8))


@pytest.mark.parametrize("seed", range(3))
def test_class_counts_and_flips(seed: int):
    label, dark, predicted, base = maps(seed)
    found, flips, flipped = count_image(label, dark, predicted, base, CLASSES)
    for plane, where in enumerate((np.ones_like(dark), dark)):
        scored = where & (label < CLASSES)
        for name in range(CLASSES):
            assert found[plane, 0, name] == np.sum(scored & (label == name) & (predicted == name))
            assert found[plane, 1, name] == np.sum(scored & (predicted == name))
    other, known = predicted != base, label < CLASSES
    assert flips[FLIPPED] == np.sum(other)
    assert flips[HARMED] == np.sum(other & known & (base == label))
    assert flips[HELPED] == np.sum(other & known & (predicted == label))
    assert flipped.tolist() == [np.sum(other & (label == name)) for name in range(CLASSES)]


def test_label_counts():
    label, dark, *_ = maps(1)
    found = count_label(label, dark, CLASSES)
    assert found.seen == label.size
    for name in range(CLASSES):
        assert found.labelled[0, name] == np.sum(label == name)
        assert found.labelled[1, name] == np.sum((label == name) & dark)


def test_noise_power():
    rng = np.random.default_rng(0)
    base = rng.normal(0, 3, (5, 40, 60)).astype(np.float32)
    scores = base + rng.normal(0, 0.1, base.shape).astype(np.float32)
    exact = np.square(scores.astype(np.float64) - base).sum()
    assert noise_power(scores, base) == pytest.approx(exact, rel=1e-4)
    assert noise_power(base, base) == 0.0
    exact -= np.square(scores[0, 0, :3].astype(np.float64) - base[0, 0, :3]).sum()
    scores[0, 0, :3] = np.nan, np.inf, -np.inf
    base[0, 0, 1] = np.inf
    assert noise_power(scores, base) == pytest.approx(exact, rel=1e-4)
