"""MSE: the least squared error, measured on the values themselves."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from calib.core.histogram import collect_statistics
from calib.core.search import squared_errors
from calibrators.mse import mse
from tests.calibrators import reference


def quantization_error(values: NDArray[np.float32], amax: float, levels: int = 128) -> float:
    """Mean squared error of the values themselves."""
    magnitudes, step = np.abs(values.astype(np.float64)), amax / (levels - 1)
    return float(((np.minimum(np.rint(magnitudes / step), levels - 1) * step - magnitudes) ** 2).mean())


@pytest.mark.parametrize("kind", reference.KINDS)
@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_the_error_on_the_textbook_histogram_is_within_one_percent(kind: str, size: int) -> None:
    values = reference.samples(kind, size, 7)
    statistics = collect_statistics("x", [values])
    errors = squared_errors(reference.histogram(values)[0])
    chosen = int(mse(statistics).amax / statistics.amax * reference.BINS)
    assert errors[chosen - 128] <= 1.01 * errors.min() + 1e-12


@pytest.mark.parametrize("kind", ["laplace", "relu", "bimodal", "student"])
def test_no_threshold_serves_the_values_better(kind: str) -> None:
    values = reference.samples(kind, 100_000, 3)
    statistics = collect_statistics("x", [values])
    answer = mse(statistics)
    error = quantization_error(values, answer.amax)
    others = [quantization_error(values, amax) for amax in np.linspace(0.07, 1, 60) * statistics.amax]
    assert error <= 1.01 * min(others)
    assert answer.objective == pytest.approx(error, rel=0.02)


def test_fewer_levels_clip_more() -> None:
    statistics = collect_statistics("x", [reference.samples("laplace", 100_000, 3)])
    assert mse(statistics, levels=8).amax < mse(statistics, levels=32).amax < mse(statistics, levels=128).amax
