"""Per-channel: a tensor's range that balances its channels instead of serving the loudest."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from calib.core.ranges import range_at
from calib.types.parameters import Parameter
from calib.types.statistics import DynamicRange, TensorStatistics

CANDIDATES = 512
HIGHEST_LEVEL = 127


def per_channel(
    statistics: TensorStatistics,
    equalize: Annotated[bool, Parameter("fold cross-layer equalization into the weights first")] = False,
) -> DynamicRange:
    """Choose the range that loses the least signal averaged over channels, quiet ones counting like loud ones.

    TensorRT takes one range an activation tensor, so a channel with a tenth of the loudest one's range gets a tenth of
    its levels. Each channel is modelled as a Laplace distribution whose largest of ``n`` values is the channel's
    observed amax: ``b = amax / ln(n)``. A range ``A`` then costs it, relative to its power ``2 b**2``, rounding noise
    ``r = (A / 127)**2 / (24 b**2)`` and clipping noise ``c = exp(-A / b)``; the range minimises the mean over channels
    of ``r / (1 + r) + c``, where the first term is bounded because a channel cannot lose more than itself.

    Args:
        statistics: of one tensor, with channel extrema; without them the answer is minmax.
        equalize: read by the build, which rescales channels and weights before this is asked
            (M. Nagel et al., "Data-Free Quantization", ICCV 2019, section 4.1).

    Returns:
        ``amax`` between 1/16 of the observed amax and all of it; ``channel_amax`` are the observed channel ranges.

    Source: Laplace clipping and rounding terms after R. Banner et al., "Post training 4-bit quantization of
    convolutional networks", NeurIPS 2019, equations 5 and 6.
    """
    del equalize
    channels = channel_amax(statistics)
    live = channels[channels > 0].astype(np.float64)
    if live.size < 2:
        return DynamicRange(statistics.amax, channel_amax=channels)
    values = max(statistics.count / channels.size, 2.0)
    spread = live / max(float(np.log(values)), 1.0)
    candidates = statistics.amax * np.linspace(1 / 16, 1, CANDIDATES)
    losses = _losses(candidates, spread)
    best = int(np.argmin(losses))
    found = range_at(statistics, float(candidates[best]), float(losses[best]))
    return DynamicRange(found.amax, found.clipped, found.objective, channels)


def channel_amax(statistics: TensorStatistics) -> NDArray[np.float32]:
    """Observed amax of each channel, float32 ``[C]``; 0 for a channel never observed."""
    magnitude = np.maximum(np.abs(statistics.channel_minimum), np.abs(statistics.channel_maximum))
    return np.where(np.isfinite(magnitude), magnitude, np.float32(0))


def _losses(candidates: NDArray[np.float64], spread: NDArray[np.float64]) -> NDArray[np.float64]:
    ratio = candidates[:, None] / spread
    rounding = ratio**2 / (24 * HIGHEST_LEVEL**2)
    return np.asarray((rounding / (1 + rounding) + np.exp(-ratio)).mean(axis=1))
