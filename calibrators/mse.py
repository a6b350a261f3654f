"""MSE: the threshold with the least squared quantization error."""

from __future__ import annotations

from typing import Annotated

from calib.core.ranges import range_at
from calib.core.search import equal_bins, squared_error_bin
from calib.types.parameters import Parameter
from calib.types.statistics import DynamicRange, TensorStatistics


def mse(
    statistics: TensorStatistics,
    levels: Annotated[int, Parameter("quantization levels of a magnitude, zero included", 2, 2048)] = 128,
    bins: Annotated[int, Parameter("equal bins that the range up to the observed amax is cut into", 128, 8192)] = 2048,
) -> DynamicRange:
    """Minimise the mean squared error between the values and their quantized image.

    Args:
        statistics: of one tensor.
        levels: levels a magnitude is quantized to; 128 for INT8.
        bins: candidates are the centres of this many equal bins, from the ``levels``-th on.

    Returns:
        ``amax`` is the centre of the chosen bin; ``objective`` is the mean squared error in squared units of the
        tensor.

    Source: NVIDIA pytorch-quantization, ``calib/histogram.py`` (``_compute_amax_mse``).
    """
    amax = statistics.amax
    if not amax:
        return DynamicRange(0.0)
    counts, _ = equal_bins(statistics, bins)
    bin_, error = squared_error_bin(counts, levels, levels)
    width = amax / bins
    return range_at(statistics, (bin_ + 0.5) * width, error * width**2)
