"""Per-channel: a tensor's range that balances its channels instead of serving the loudest."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.ranges import range_at
from calib.types.parameters import Parameter
from calib.types.statistics import DynamicRange, TensorStatistics

CANDIDATES = 128
LOWEST = 1 / 16
"""Smallest candidate, as a share of the observed amax."""
SACRIFICE = 2.0
"""Largest squared error of the whole tensor that balancing may cost, as a multiple of the least: 3 dB."""

HIGHEST_LEVEL = 127
FEWEST_BINS = 1024
"""A histogram with fewer bins (magnitudes near float32's smallest) cannot tell what a threshold clips."""


def per_channel(
    statistics: TensorStatistics,
    equalize: Annotated[bool, Parameter("fold cross-layer equalization into the weights first")] = False,
) -> DynamicRange:
    """Choose the range that loses the least signal averaged over channels, quiet ones counting like loud ones.

    TensorRT takes one range an activation tensor, so a channel with a tenth of the loudest one's range gets a tenth of
    its levels. The range ``A`` minimises the mean over live channels of noise relative to the channel's own power
    ``P``, where the noise is

    - rounding: ``(A / 127)**2 / 12`` for each value that is not 0, the variance of a uniform error of one step; at
      most ``P``, since a channel cannot lose more than itself;
    - clipping: the sum of ``(|x| - A)**2`` beyond ``A``, measured on the tensor's histogram, and shared among the
      channels that reach beyond ``A`` as ``(amax - A)**2``, the largest that each can suffer.

    The histogram holds no channels, so their powers are modelled: as if all had one shape at different scales, ``P`` is
    proportional to ``amax**2`` and sums to the power of the tensor. With equal channels this is the least squared
    error. As loud channels are often the ones that matter, only ranges are considered whose squared error over the
    whole tensor is at most twice the least.

    Args:
        statistics: of one tensor, with channel extrema; without them the answer is minmax.
        equalize: read by the build, which rescales channels and weights before this is asked
            (M. Nagel et al., "Data-Free Quantization", ICCV 2019, section 4.1).

    Returns:
        ``amax`` between 1/16 of the observed amax and all of it; ``objective`` is the mean relative noise;
        ``channel_amax`` are the observed channel ranges.

    Source: derived here; rounding noise after B. Widrow and I. Kollar, "Quantization Noise", 2008.
    """
    del equalize
    channels = channel_amax(statistics)
    live = channels[channels > 0].astype(np.float64)
    if live.size < 2 or statistics.magnitude.size < FEWEST_BINS:
        return DynamicRange(statistics.amax, channel_amax=channels)
    candidates = statistics.amax * np.linspace(LOWEST, 1, CANDIDATES)
    losses, squared = _losses(statistics, candidates, live, channels.size)
    best = int(np.argmin(np.where(squared <= SACRIFICE * squared.min(), losses, np.inf)))
    found = range_at(statistics, float(candidates[best]), float(losses[best]))
    return DynamicRange(found.amax, found.clipped, found.objective, channels)


def channel_amax(statistics: TensorStatistics) -> NDArray[np.float32]:
    """Observed amax of each channel, float32 ``[C]``; 0 for a channel never observed."""
    magnitude = np.maximum(np.abs(statistics.channel_minimum), np.abs(statistics.channel_maximum))
    return np.where(np.isfinite(magnitude), magnitude, np.float32(0))


def _losses(
    statistics: TensorStatistics, candidates: NDArray[np.float64], live: NDArray[np.float64], channels: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean relative noise of the live channels at each candidate, and the mean squared error of the whole tensor.

    ``live`` are the channels' amax where it is not 0, ``channels`` counts all.
    """
    clipped, power = _clipped_energy(statistics, candidates)
    per_live = channels / live.size
    shape = power * per_live / np.mean(live**2)  # P = shape * amax**2
    step_noise = (candidates / HIGHEST_LEVEL) ** 2 / 12 * (1 - statistics.magnitude[0] / statistics.count)
    rounding = step_noise * per_live / shape  # times amax**-2: relative to P
    balanced = _mean_rounding(rounding, live) + clipped * per_live / shape * _clipping_shares(candidates, live)
    return balanced, clipped + step_noise


def _mean_rounding(rounding: NDArray[np.float64], live: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over channels of ``min(rounding / amax**2, 1)``."""
    ordered = np.sort(live)
    lost = np.searchsorted(ordered, np.sqrt(rounding), "right")
    return (lost + rounding * _beyond(1 / ordered**2)[lost]) / live.size


def _clipping_shares(candidates: NDArray[np.float64], live: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean of ``amax**-2`` over the channels, weighted by ``(amax - A)**2`` for those beyond each candidate ``A``."""
    ordered = np.sort(live)
    first = np.searchsorted(ordered, candidates, "right")
    terms = (np.ones_like(ordered), ordered, ordered**2, 1 / ordered, 1 / ordered**2)
    ones, amax, square, inverse, inverse_square = (_beyond(term)[first] for term in terms)
    weights = square - 2 * candidates * amax + candidates**2 * ones
    weighted = ones - 2 * candidates * inverse + candidates**2 * inverse_square
    return np.divide(weighted, weights, out=np.zeros_like(weights), where=ones > 0)


def _beyond(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sum of the values from each one on, and 0 behind the last."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _clipped_energy(statistics: TensorStatistics, candidates: NDArray[np.float64]) -> tuple[NDArray[np.float64], float]:
    """Mean over all values of what clipping at each candidate costs, squared, and the mean square itself."""
    counts = statistics.magnitude
    centres = (np.arange(counts.size) + 0.5) * statistics.bin_width
    first = np.minimum(np.ceil(candidates / statistics.bin_width).astype(np.int64), counts.size)
    ones, linear, square = (_beyond(counts * centres**power) for power in range(3))
    energy = square[first] - 2 * candidates * linear[first] + candidates**2 * ones[first]
    return np.maximum(energy, 0) / statistics.count, float(square[0] / statistics.count)
