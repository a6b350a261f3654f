"""Calibrators: pure functions ``(TensorStatistics, **parameters) -> DynamicRange``.

A new one is one module, one line below and one test.
"""

from __future__ import annotations

from collections.abc import Mapping

from calib.types.statistics import Calibrator
from calibrators.entropy import entropy
from calibrators.minmax import minmax
from calibrators.mse import mse
from calibrators.per_channel import per_channel
from calibrators.percentile import percentile

CALIBRATORS: Mapping[str, Calibrator] = {
    "entropy": entropy,
    "minmax": minmax,
    "percentile": percentile,
    "mse": mse,
    "per-channel": per_channel,
}
"""In the order in which a build without ``--calibrator`` runs them; the first makes ``calibration.cache``."""
