"""Minmax: the whole observed range."""

from __future__ import annotations

from calib.types.statistics import DynamicRange, TensorStatistics


def minmax(statistics: TensorStatistics) -> DynamicRange:
    """Cover everything that was seen: nothing is clipped, and the largest value sets the step.

    Args:
        statistics: of one tensor.

    Returns:
        ``amax = max(|minimum|, |maximum|)``.

    Source: TensorRT ``IInt8MinMaxCalibrator`` (documented behaviour).
    """
    return DynamicRange(amax=statistics.amax)
