"""Entropy: the threshold that keeps the most information of the value distribution."""

from __future__ import annotations

from typing import Annotated

import numpy as np

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

    A candidate is passed over where it keeps a single occupied bin: its entropy is 0 whatever it clips, which would
    throw away everything but one stray value.

    Returns:
        ``amax`` is the upper edge of the last kept bin; ``objective`` is the relative entropy in nats. Where no
        candidate is left nothing is clipped.

    Source: S. Migacz, "8-bit Inference with TensorRT", GTC 2017; on an identical histogram the bin is the one
    NVIDIA pytorch-quantization (``calib/histogram.py``) chooses.
    """
    amax = statistics.amax
    if not amax:
        return DynamicRange(0.0)
    counts, certain = equal_bins(statistics, bins)
    several = np.cumsum(counts[1:] > 0) + (counts[1] > 0) > 1  # as bin 0 counts as bin 1 does
    usable = certain & np.concatenate([[False], several])
    kept, divergence = entropy_bin(counts, levels, levels, usable)
    return range_at(statistics, amax if kept == bins else kept / bins * amax, divergence)
