"""Minmax: everything that was seen."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.histogram import collect_statistics
from calibrators.minmax import minmax


@pytest.mark.parametrize(
    ("low", "high", "amax"), [(-3.0, 2.0, 3.0), (-1.0, 5.0, 5.0), (0.5, 4.0, 4.0), (-9.0, -2.0, 9.0)]
)
def test_the_larger_magnitude_is_the_range(low: float, high: float, amax: float) -> None:
    answer = minmax(collect_statistics("x", [np.array([low, high, (low + high) / 2], np.float32)]))
    assert (answer.amax, answer.clipped, answer.objective, answer.channel_amax) == (amax, 0.0, None, None)
