"""Threshold searches against textbook loops on the same histogram."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calib.core.histogram import collect_statistics
from calib.core.search import (
    entropy_bin,
    entropy_divergences,
    equal_bins,
    percentile_bin,
    squared_error_bin,
    squared_errors,
)
from tests.calibrators import reference

Counts = NDArray[np.int64]
laws = settings(deadline=None, max_examples=80)


def histograms(least: int = 1) -> st.SearchStrategy[Counts]:
    amounts = st.one_of(st.integers(0, 3), st.sampled_from([0, 0, 0, 1, 40, 10**6, 3 * 10**9]))
    return st.lists(amounts, min_size=max(least, 2), max_size=40).map(lambda items: np.array(items, np.int64))


# Few bins for most, so that the textbook loops stay short; the usual number for a few.
@pytest.mark.parametrize(
    ("kind", "bins", "size", "seed"),
    [
        *((kind, 2048, 200_000, 0) for kind in ("laplace", "relu", "bimodal", "outlier")),
        *((kind, 400, 50_000, 1) for kind in reference.KINDS),
        *((kind, 300, 3_000, 2) for kind in reference.KINDS),
    ],
)
def test_the_same_bins_as_the_textbook(kind: str, bins: int, size: int, seed: int) -> None:
    counts, _ = reference.histogram(reference.samples(kind, size, seed), bins)
    assert entropy_bin(counts)[0] == reference.best_by_entropy(counts)
    assert squared_error_bin(counts)[0] == reference.best_by_squared_error(counts)
    for percentile in (50.0, 99.0, 99.9, 99.99, 100.0):  # which shares of so round a number of values meet exactly
        assert percentile_bin(counts, percentile) == reference.best_by_percentile(counts, percentile)


@pytest.mark.parametrize("kind", ["laplace", "relu"])
def test_every_candidate_has_the_textbook_objective(kind: str) -> None:
    counts, _ = reference.histogram(reference.samples(kind, 20_000, 5), 400)
    np.testing.assert_allclose(entropy_divergences(counts), reference.divergences(counts), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(squared_errors(counts), reference.squared_errors(counts), rtol=1e-9)
    assert entropy_bin(counts)[1] == pytest.approx(reference.divergences(counts).min(), rel=1e-12)
    assert squared_error_bin(counts)[1] == pytest.approx(reference.squared_errors(counts).min(), rel=1e-12)


@laws
@given(histograms(), st.integers(2, 6), st.integers(0, 3))
def test_divergences_of_any_histogram(counts: Counts, levels: int, later: int) -> None:
    start = levels + later
    found = entropy_divergences(counts, levels, start)
    wanted = [reference.divergence(counts, kept, levels) for kept in range(start, counts.size + 1)]
    usable = np.where(np.isnan(wanted), np.inf, wanted)  # NaN: nothing is kept
    np.testing.assert_allclose(found, usable, rtol=1e-9, atol=1e-9)
    kept, objective = entropy_bin(counts, levels, start)
    if np.isfinite(usable).any():
        assert objective == pytest.approx(usable.min(), abs=1e-12)
        assert usable[kept - start] == pytest.approx(usable.min(), abs=1e-12)
    else:
        assert (kept, objective) == (counts.size, 0.0)


@laws
@given(histograms(), st.integers(2, 6))
def test_squared_errors_of_any_histogram(counts: Counts, levels: int) -> None:
    if not counts.any():
        counts = np.append(counts, 1)
    wanted = [reference.squared_error(counts, candidate, levels) for candidate in range(levels, counts.size)]
    np.testing.assert_allclose(squared_errors(counts, levels, levels), wanted, rtol=1e-6, atol=1e-9)
    bin_, objective = squared_error_bin(counts, levels, levels)
    if wanted:
        assert objective == pytest.approx(min(wanted), rel=1e-9, abs=1e-12)
        assert wanted[bin_ - levels] == pytest.approx(min(wanted), rel=1e-9, abs=1e-12)
    else:
        assert (bin_, objective) == (counts.size - 1, 0.0)


@laws
@given(histograms(), st.integers(0, 10_000))
def test_the_percentile_is_the_first_bin_that_reaches_it(counts: Counts, hundredths: int) -> None:
    if not counts.any():
        counts = np.append(counts, 1)
    bin_ = percentile_bin(counts, hundredths / 100)
    total, up_to, before = (int(part.sum()) for part in (counts, counts[: bin_ + 1], counts[:bin_]))
    rounding = Fraction(1, 10**12)
    assert Fraction(up_to, total) >= Fraction(hundredths, 10_000) - rounding
    assert bin_ == 0 or Fraction(before, total) < Fraction(hundredths, 10_000) + rounding


def test_of_equal_divergences_the_last_is_taken() -> None:
    counts = np.array([7, 0, 5, 0, 5, 0, 0, 5])
    assert entropy_divergences(counts, 2, 3)[-1] == 0.0
    assert entropy_bin(counts, 2, 3) == (8, 0.0)
    assert entropy_bin(counts, 8, 8) == (8, 0.0)


def test_a_single_occupied_bin_has_no_divergence_wherever_it_lies() -> None:
    """The textbook's fluke: it keeps one stray value and clips all others, on this histogram so does the search."""
    counts = np.zeros(512, np.int64)
    counts[200] = 1
    counts[450:] = np.arange(62) + 100
    assert reference.divergence(counts, 201) == 0.0
    assert np.isnan(reference.divergences(counts)[:73]).all()
    assert 128 + np.nanargmin(reference.divergences(counts)) == 201
    assert entropy_bin(counts) == (201, 0.0)


def test_bins_that_are_not_usable_are_passed_over() -> None:
    counts, _ = reference.histogram(reference.samples("laplace", 20_000, 5), 400)
    best, _ = entropy_bin(counts)
    usable = np.ones(400, np.bool_)
    usable[best - 1] = False
    second, objective = entropy_bin(counts, usable=usable)
    assert second != best
    assert objective == pytest.approx(np.sort(reference.divergences(counts))[1], rel=1e-9)
    assert entropy_bin(counts, usable=np.zeros(400, np.bool_)) == (400, 0.0)


def test_searches_leave_their_input_alone() -> None:
    """ModelOpt's entropy search overwrites bin 0 of the stored histogram, and so the percentile asked after it."""
    counts, _ = reference.histogram(reference.samples("relu", 20_000, 5), 400)
    counts.flags.writeable = False
    before = counts.copy()
    first = percentile_bin(counts, 60), squared_error_bin(counts)
    entropy_bin(counts)
    assert (percentile_bin(counts, 60), squared_error_bin(counts)) == first
    assert np.array_equal(counts, before)


def test_counts_beyond_int32_are_searched_exactly() -> None:
    """ModelOpt converts to int32: three thousand million zeros become negative, and the percentile 0."""
    counts, _ = reference.histogram(reference.samples("half-normal", 20_000, 5), 400)
    many = counts * 10**6
    many[0] += 3 * 10**9
    wanted = np.searchsorted(np.cumsum(many.astype(object)), many.astype(object).sum() * 9999 // 10000)
    assert percentile_bin(many, 99.99) == wanted > 0
    assert entropy_bin(many)[0] == entropy_bin(counts)[0]


@pytest.mark.parametrize("kind", [*reference.KINDS, "high only"])
@pytest.mark.parametrize("bins", [128, 2048, 8192])
def test_equal_bins_approximate_the_histogram_itself(kind: str, bins: int) -> None:
    values = reference.samples(kind, 100_000, 3)
    statistics = collect_statistics("x", [values])
    counts, certain = equal_bins(statistics, bins)
    wanted, edges = reference.histogram(values, bins)
    assert counts.sum() == values.size
    assert counts.min() >= 0
    ahead = np.abs(np.cumsum(counts) - np.cumsum(wanted))
    straddling = statistics.magnitude[
        np.minimum((edges[1:] / statistics.bin_width).astype(int), statistics.magnitude.size - 1)
    ]
    assert (ahead <= straddling + 1).all(), "an edge divides at most the source bin that it lies in"
    assert not (certain & (wanted == 0) & (counts > 0)).any(), "certainly occupied means occupied"
    exact = edges[:-1] > np.sort(np.abs(values))[-256]
    assert np.array_equal(counts[exact], wanted[exact]), "in the tail nothing is divided"


def test_equal_bins_of_aligned_edges_are_exact() -> None:
    rng = np.random.default_rng(0)
    values = np.append(rng.integers(0, 4096, 50_000) / 1024, 4.0).astype(np.float32)
    counts, certain = equal_bins(collect_statistics("x", [values]), 1024)
    wanted, _ = reference.histogram(values, 1024)
    assert np.array_equal(counts, wanted)
    assert certain.all()


def test_few_values_are_cut_exactly_whatever_the_bins() -> None:
    values = reference.samples("student", 200, 1)
    for bins in (128, 1000, 8192):
        counts, certain = equal_bins(collect_statistics("x", [values]), bins)
        assert np.array_equal(counts, reference.histogram(values, bins)[0])
        assert certain.all()


def test_equal_bins_work_without_a_tail() -> None:
    """Statistics made by other hands may not have one."""
    values = reference.samples("laplace", 50_000, 1)
    statistics = replace(collect_statistics("x", [values]), tail=np.empty(0, np.float32))
    counts, certain = equal_bins(statistics)
    wanted, _ = reference.histogram(values)
    assert counts.sum() == values.size
    assert np.abs(np.cumsum(counts) - np.cumsum(wanted)).max() <= statistics.magnitude.max()
    assert not certain.all()


def test_equal_bins_narrower_than_those_of_the_source_hold_no_negative_counts() -> None:
    """Near float32's smallest normal number bins stop getting narrower, and many edges fall into one of them."""
    values = np.repeat([0.0, 50.5, 50.9], [100, 16, 240]).astype(np.float32) * np.float32(2.0**-126)
    counts, _ = equal_bins(collect_statistics("x", [values]))
    assert counts.min() >= 0
    assert counts.sum() == 356
    assert counts[-1] == 240
