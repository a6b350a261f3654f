"""A Q/DQ pair as it is written in a network: its scales, zero points and limits, and what they do to a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear"})


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A Q/DQ pair, or a DequantizeLinear of stored integers.

    Attributes:
        tensor: what it quantizes, as the float twin names it.
        node: label of the QuantizeLinear, or of the DequantizeLinear where there is no other.
        output: what its DequantizeLinear makes, in the Q/DQ network.
        scale: float64, one element or one a channel.
        zero: float64 zero points, broadcast like the scale.
        low: smallest integer.
        high: largest.
        axis: of the channels, where there are several scales.
        constant: the stored float weights or, behind integers, their dequantized values; None for an activation.
        exact: whether ``constant`` holds the float weights themselves.
        readers: labels of the nodes that read it.
        reader_kinds: their operators.
        into: scale and zero point of its QuantizeLinear where they are not those of the DequantizeLinear.
    """

    tensor: str
    node: str
    output: str
    scale: NDArray[np.float64]
    zero: NDArray[np.float64]
    low: int
    high: int
    axis: int
    constant: NDArray[Any] | None = None
    exact: bool = True
    readers: tuple[str, ...] = ()
    reader_kinds: tuple[str, ...] = ()
    into: tuple[NDArray[np.float64], NDArray[np.float64]] | None = None

    @property
    def channel_axis(self) -> int:
        """Axis of the output channels of weights, as the layers that read them have it."""
        if self.scale.size > 1:
            return self.axis
        return {"ConvTranspose": 1, "MatMul": -1, "Gemm": -1}.get(next(iter(self.reader_kinds), ""), 0)

    def shaped(self, values: NDArray[Any], rank: int) -> NDArray[Any]:
        """Scales or zero points in the shape that broadcasts over a tensor of this rank."""
        if values.size == 1:
            return values.reshape(())
        shape = [1] * rank
        shape[self.axis % rank] = values.size
        return values.reshape(shape)

    def integers(self, value: NDArray[Any]) -> NDArray[np.float64]:
        """What the integers would be without their limits: rounded half to even."""
        scale, zero = (self.shaped(item, value.ndim) for item in self.into or (self.scale, self.zero))
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.rint(np.asarray(value, np.float64) / scale) + zero)

    def fake(self, value: NDArray[Any]) -> NDArray[np.float64]:
        """Quantize and dequantize, float64."""
        scale, zero = (self.shaped(item, value.ndim) for item in (self.scale, self.zero))
        with np.errstate(invalid="ignore"):  # a scale that is none
            return np.asarray((np.clip(self.integers(value), self.low, self.high) - zero) * scale)
