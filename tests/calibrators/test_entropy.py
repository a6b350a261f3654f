"""Entropy: on bins of our own as good as the textbook on its own, and sane where the textbook is not."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calib.core.histogram import collect_statistics
from calib.core.search import entropy_divergences
from calibrators.entropy import entropy
from tests.calibrators import reference

REPRESENTATIVE = ("laplace", "half-normal", "relu", "bimodal", "outlier")


@pytest.mark.parametrize("kind", REPRESENTATIVE)
@pytest.mark.parametrize(("size", "seed"), [*((200_000, seed) for seed in range(4)), (2_000_000, 0)])
def test_the_divergence_on_the_textbook_histogram_is_within_one_percent(kind: str, size: int, seed: int) -> None:
    values = reference.samples(kind, size, seed)
    statistics = collect_statistics("x", [values])
    divergences = entropy_divergences(reference.histogram(values)[0])
    chosen = round(entropy(statistics).amax / statistics.amax * reference.BINS)
    assert divergences[chosen - 128] <= 1.01 * divergences.min()


def test_the_objective_is_the_divergence() -> None:
    values = reference.samples("laplace", 50_000, 3)
    counts, edges = reference.histogram(values)
    answer = entropy(collect_statistics("x", [values]))
    kept = round(answer.amax / edges[-1] * reference.BINS)
    assert answer.amax == pytest.approx(edges[kept])
    assert answer.objective == pytest.approx(reference.divergence(counts, kept), rel=0.05)


def strays(rng: np.random.Generator, *lone: float) -> NDArray[np.float32]:
    """Everything near 6, but for single values far below."""
    return np.concatenate([lone, rng.normal(6, 0.4, 20_000)]).astype(np.float32)


def test_one_stray_value_does_not_become_the_range() -> None:
    """Where the first bins are empty the textbook's entropy is 0 at the first occupied one: it would clip the rest."""
    values = strays(np.random.default_rng(0), 2.0)
    counts, edges = reference.histogram(values)
    fluke = 128 + int(np.nanargmin(reference.divergences(counts)))
    assert edges[fluke] < 2.1
    assert reference.divergence(counts, fluke) == 0.0
    for lone in ((2.0,), (1.5, 2.0), (1.5, 1.5001, 3.0), ()):
        answer = entropy(collect_statistics("x", [strays(np.random.default_rng(0), *lone)]))
        assert answer.amax > 6
        assert answer.clipped < 0.05


def test_two_values_are_both_kept() -> None:
    values = np.repeat([1.0, 6.0], [3000, 7000]).astype(np.float32)
    answer = entropy(collect_statistics("x", [values]))
    assert (answer.amax, answer.clipped) == (6.0, 0.0)


def test_exact_zeros_do_not_decide() -> None:
    """Behind a Relu half of the values are 0; with or without them the range is the same."""
    values = np.abs(reference.samples("laplace", 50_000, 4))
    with_zeros = np.concatenate([values, np.zeros(200_000, np.float32)])
    answers = [entropy(collect_statistics("x", [array])) for array in (values, with_zeros)]
    assert answers[0].amax == answers[1].amax


def test_too_few_bins_for_the_levels_clip_nothing() -> None:
    statistics = collect_statistics("x", [reference.samples("laplace", 50_000, 4)])
    assert entropy(statistics, levels=2048, bins=128).amax == statistics.amax


def test_an_outlier_is_clipped_where_the_entropy_gains() -> None:
    values = reference.samples("laplace", 2_000_000, 4)
    values[0] = 60.0
    assert entropy(collect_statistics("x", [values])).amax < 40.0
