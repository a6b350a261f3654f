"""Percentile: of the whole data set, at histogram resolution."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.histogram import collect_statistics
from calibrators.percentile import percentile
from tests.calibrators import reference


@pytest.mark.parametrize("kind", reference.KINDS)
@pytest.mark.parametrize("percent", [90.0, 99.99, 99.999])
def test_the_threshold_is_the_percentile_to_one_bin(kind: str, percent: float) -> None:
    values = reference.samples(kind, 99_991, 1)  # a prime: no share meets the percentile exactly
    statistics = collect_statistics("x", [values])
    answer = percentile(statistics, percent)
    wanted = np.quantile(np.abs(values), percent / 100, method="inverted_cdf")
    assert wanted <= answer.amax <= wanted + statistics.bin_width
    assert answer.clipped <= 1 - percent / 100 + 1e-12


def test_it_is_the_percentile_of_the_data_set_not_of_batches() -> None:
    """A mean over batches of their percentiles lets one loud batch decide, or vanish."""
    quiet, loud = np.linspace(0, 1, 99_000, dtype=np.float32), np.linspace(0, 100, 1_000, dtype=np.float32)
    joined = collect_statistics("x", [quiet, loud])
    assert percentile(joined, 99.5).amax == pytest.approx(np.quantile(np.concatenate([quiet, loud]), 0.995), rel=0.02)


def test_all_of_the_values_is_minmax() -> None:
    statistics = collect_statistics("x", [reference.samples("student", 10_000, 2)])
    assert percentile(statistics, 100.0).amax == statistics.amax


def test_a_clipped_share_is_reported() -> None:
    statistics = collect_statistics("x", [np.arange(1, 10_001, dtype=np.float32)])
    assert percentile(statistics, 99.0).clipped == pytest.approx(0.01, abs=2e-4)
