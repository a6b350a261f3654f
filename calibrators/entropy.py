"""Entropy: the threshold that keeps the most information of the value distribution."""

from __future__ import annotations

from typing import Annotated

from calib.core.ranges import range_at
from calib.core.search import entropy_bin, equal_bins
from calib.types.parameters import Parameter
from calib.types.statistics import DynamicRange, TensorStatistics


def entropy(
    statistics: TensorStatistics,
    levels: Annotated[int, Parameter("quantization levels of a magnitude", 2, 2048)] = 128,
    bins: Annotated[int, Parameter("equal bins that the range up to the observed amax is cut into", 128, 8192)] = 2048,
) -> DynamicRange:
    """Minimise the relative entropy between the values and their quantized image.

    Args:
        statistics: of one tensor.
        levels: levels a magnitude is quantized to; 128 for INT8.
        bins: candidates are the edges of this many equal bins, from the ``levels``-th on.

    Returns:
        ``amax`` is the upper edge of the last kept bin; ``objective`` is the relative entropy in nats. Where no
        threshold has a finite entropy nothing is clipped.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017; on an identical histogram the bin is the one
    NVIDIA pytorch-quantization (``calib/histogram.py``) chooses.
    """
    amax = statistics.amax
    if not amax:
        return DynamicRange(0.0)
    counts, certain = equal_bins(statistics.magnitude, statistics.bin_width, amax, bins)
    kept, divergence = entropy_bin(counts, levels, levels, certain)
    return range_at(statistics, amax if kept == bins else kept / bins * amax, divergence)
