"""Calibrators: pure functions ``(TensorStatistics, **parameters) -> DynamicRange``.

A new one is one module, one line below and one test.
"""

from __future__ import annotations

from collections.abc import Mapping

from calib.types.statistics import Calibrator

CALIBRATORS: Mapping[str, Calibrator] = {}
