"""Statistics of a tensor, and the dynamic range a calibrator makes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class TensorStatistics:
    """Exact, mergeable statistics of one activation tensor over a set of images.

    Value ``x`` with ``|x|`` in ``[k * 2**exponent, (k+1) * 2**exponent)`` is counted in ``positive[k]``
    when ``x >= 0`` (zeros of either sign included) and in ``negative[k]`` when ``x < 0``.

    Attributes:
        name: tensor name in the ONNX graph.
        count: number of finite values seen; 0 means never observed.
        nonfinite: number of NaN and infinite values, not counted elsewhere.
        minimum: smallest finite value (``inf`` when never observed).
        maximum: largest finite value (``-inf`` when never observed).
        exponent: log2 of the bin width.
        negative: int64 counts of negative values by magnitude bin.
        positive: int64 counts of the other values by magnitude bin, same length as ``negative``.
        channel_axis: axis of ``channel_minimum`` in the tensor, or None where the tensor has none.
        channel_minimum: float32 ``[C]``, empty without channel axis.
        channel_maximum: float32 ``[C]``, empty without channel axis.
        tail: the largest magnitudes as they are, float32, ascending: all of up to 256 values, else the 256 largest;
            empty where they are not known. Sparse tails decide thresholds, and bins alone would blur them.
    """

    name: str
    count: int
    nonfinite: int
    minimum: float
    maximum: float
    exponent: int
    negative: NDArray[np.int64]
    positive: NDArray[np.int64]
    channel_axis: int | None
    channel_minimum: NDArray[np.float32]
    channel_maximum: NDArray[np.float32]
    tail: NDArray[np.float32] = field(default_factory=lambda: np.empty(0, np.float32))

    @property
    def amax(self) -> float:
        """Largest magnitude seen, 0.0 when never observed."""
        return max(abs(self.minimum), abs(self.maximum)) if self.count else 0.0

    @property
    def bin_width(self) -> float:
        """Width of a bin, a power of two."""
        return float(2.0**self.exponent)

    @property
    def magnitude(self) -> NDArray[np.int64]:
        """Counts of ``|x|``, int64 ``[bins]``."""
        return self.negative + self.positive


@dataclass(frozen=True)
class DynamicRange:
    """A calibrator's answer for one tensor: quantize on ``[-amax, amax]``, scale ``amax / 127``.

    Attributes:
        amax: half-width of the range; at most the observed amax; 0.0 for a dead tensor.
        clipped: share of the values with ``|x| > amax``, 0..1, at histogram resolution.
        objective: what the calibrator minimised, at its optimum (KL in nats, mean squared error), or None.
        channel_amax: float32 ``[C]`` observed amax a channel, or None where the calibrator ignores channels.
    """

    amax: float
    clipped: float = 0.0
    objective: float | None = None
    channel_amax: NDArray[np.float32] | None = None


Calibrator = Callable[..., DynamicRange]
"""``(statistics: TensorStatistics, **parameters) -> DynamicRange``, pure."""
