"""From a threshold on a tensor's histogram to its dynamic range."""

from __future__ import annotations

from calib.types.statistics import DynamicRange, TensorStatistics


def range_at(statistics: TensorStatistics, threshold: float, objective: float | None = None) -> DynamicRange:
    """Range that ends at ``threshold``, at most at the observed amax, with its clipped share."""
    amax = min(threshold, statistics.amax)
    return DynamicRange(amax=amax, clipped=clipped_share(statistics, amax), objective=objective)


def clipped_share(statistics: TensorStatistics, amax: float) -> float:
    """Share (0..1) of the values in bins that lie wholly beyond ``amax``."""
    if not statistics.count or amax >= statistics.amax:
        return 0.0
    first_beyond = int(-(-amax // statistics.bin_width))
    return float(statistics.magnitude[first_beyond:].sum() / statistics.count)
