"""Percentile: clip a fixed share of the data set's values."""

from __future__ import annotations

from typing import Annotated

from calib.core.ranges import range_at
from calib.core.search import percentile_bin
from calib.types.parameters import Parameter
from calib.types.statistics import DynamicRange, TensorStatistics


def percentile(
    statistics: TensorStatistics,
    percentile: Annotated[float, Parameter("percent of the data set's values inside the range", 0, 100)] = 99.99,
) -> DynamicRange:
    """Keep ``percentile`` percent of all values of the data set (not of each batch) inside the range.

    Args:
        statistics: of one tensor.
        percentile: in percent; 100 is minmax.

    Returns:
        ``amax`` is the upper edge of the bin in which the percentile of ``|x|`` falls, at most the observed amax.

    Source: H. Wu et al., "Integer Quantization for Deep Learning Inference", arXiv:2004.09602, section 3.3.
    """
    if not statistics.count:
        return DynamicRange(0.0)
    kept = percentile_bin(statistics.magnitude, percentile) + 1
    return range_at(statistics, kept * statistics.bin_width)
