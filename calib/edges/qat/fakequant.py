"""Fake quantization with gradients: what a Q/DQ pair computes, as a module that training can work through.

Forward it is ``clamp(round(x / scale), -128, 127) * scale``, INT8, symmetric, zero point 0, as
:mod:`calib.core.quantization` has it. Backward, rounding counts as the identity (straight-through estimator, Bengio et
al. 2013) and what is clipped gets no gradient. A learnable scale gets the gradient of LSQ (Esser et al. 2020, equation
3), scaled by ``1 / sqrt(N * 127)``; it is the start value times ``exp(r)`` with ``r`` learnt, so that it stays positive
and a step means the same to a large and a small scale (Jain et al. 2020 train thresholds in this domain).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from calib.core.quantization import DEAD_AMAX, QUANT_MAX, QUANT_MIN, SCALE_FLOOR

Tensor = Any
FLOAT_BITS = 24
"""Significant bits of float32."""
FARTHEST = 16.0
"""Farthest a scale goes from its start, as a logarithm: 23 bits. A step too large leaves it positive and finite."""


def quantize_exactly(x: Tensor, scale: Tensor) -> Tensor:
    """Compute what runtimes compute for a Q/DQ pair, division included.

    Args:
        x: float32.
        scale: float32, one value or of a shape that broadcasts with ``x``.
    """
    return torch.round(x / scale).clamp_(QUANT_MIN, QUANT_MAX).mul_(scale)


def _fused(x: Tensor, scale: Tensor) -> Tensor:
    """PyTorch's kernel: one pass; it multiplies by ``1 / scale``, which may round the other way at a tie."""
    zero = torch.zeros(1, dtype=torch.int32, device=x.device)
    return torch.fake_quantize_per_tensor_affine(x, scale.reshape(1), zero, QUANT_MIN, QUANT_MAX)


class _Coarse(torch.autograd.Function):
    """Rounding up to a few significant bits, as :func:`calib.core.quantization.coarse_scale`; the identity backward."""

    @staticmethod
    def forward(ctx: Any, scale: Tensor, bits: int) -> Tensor:
        del ctx
        rest = (1 << (FLOAT_BITS - bits)) - 1  # low bits of a positive float32, whose carry runs into the exponent
        return ((scale.contiguous().view(torch.int32) + rest) & ~rest).view(torch.float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        del ctx
        return grad, None


class _OnGrid(torch.autograd.Function):
    """A bias rounded to whole steps of the sums it is added to; the identity backward."""

    @staticmethod
    def forward(ctx: Any, bias: Tensor, step: Tensor) -> Tensor:
        del ctx
        return (torch.round(bias.double() / step.double()) * step.double()).to(bias.dtype)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        del ctx
        return grad, None


def coarse(scale: Tensor, bits: int) -> Tensor:
    """Round scales up to a few significant bits."""
    return scale if bits >= FLOAT_BITS else _Coarse.apply(scale, bits)


def on_grid(bias: Tensor, step: Tensor) -> Tensor:
    """Round a bias to whole steps of the sums it is added to, as an INT32 bias would be.

    Args:
        bias: ``[C]``.
        step: scale of the input times that of the weight, 0-d or ``[C]``.
    """
    return _OnGrid.apply(bias, step)


class _Straight(torch.autograd.Function):
    """Values in place of a tensor's own, with the gradient of the identity."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, values: Tensor) -> Tensor:
        del ctx, x
        return values.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        del ctx
        return grad, None


class _Learnt(torch.autograd.Function):
    """Fake quantization on learnable scales, with LSQ's gradient for them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, factor: float) -> Tensor:
        y = _fused(x, scale) if scale.numel() == 1 else quantize_exactly(x, scale)
        ctx.save_for_backward(x, y, scale)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        x, y, scale = ctx.saved_tensors
        inside = (x >= scale * (QUANT_MIN - 0.5)) & (x <= scale * (QUANT_MAX + 0.5))
        passed = grad * inside
        # Inside d(fq)/ds = round(x/s) - x/s, at the ends it is -128 or 127: y/s less x/s where x passes.
        slope = (grad * y - passed * x) / scale
        return passed, slope.sum_to_size(scale.shape) * ctx.factor, None


def fake_quantize(x: Tensor, scale: Tensor, *, learnt: bool, elements: int) -> Tensor:
    """Fake-quantize with gradients.

    Args:
        x: float32.
        scale: float32, one value or, where learnt, broadcasting with ``x``.
        learnt: whether the scale gets a gradient.
        elements: N of LSQ's gradient scale: values of one image (activations) or of one channel (weights).
    """
    if not torch.is_grad_enabled():
        return quantize_exactly(x, scale)
    if learnt:
        return _Learnt.apply(x, scale, 1.0 / math.sqrt(max(1, elements) * QUANT_MAX))
    return _fused(x, scale)


class Quantizer(nn.Module):
    """Fake quantization of one tensor.

    Args:
        scale: float64 scales to start from, 0-d or ``[C]``, exact in float32.
        axis: axis of the channels, None for a single scale.
        learnt: whether training moves the scales.
        bits: significant bits that the scales keep.
    """

    def __init__(self, scale: NDArray[np.float64], axis: int | None, *, learnt: bool, bits: int = FLOAT_BITS) -> None:
        super().__init__()
        self.axis, self.bits = axis, bits
        self.register_buffer("start", torch.tensor(np.asarray(scale), dtype=torch.float32))
        self.shift = nn.Parameter(torch.zeros_like(self.start)) if learnt else None

    @property
    def scale(self) -> Tensor:
        """The scales, float32, 0-d or ``[C]``."""
        moved = self.start if self.shift is None else self.start * torch.exp(self.shift.clamp(-FARTHEST, FARTHEST))
        return coarse(moved, self.bits)

    def scale_for(self, x: Tensor) -> Tensor:
        """The scales for a tensor, float32, 0-d or ``[C]``."""
        del x
        return self.scale

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """Fake-quantize in float32, whatever mixed precision does around it.

        Args:
            x: any float tensor.
            scale: what :meth:`scale_for` gave, where it is at hand.
        """
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            given = self.scale_for(x) if scale is None else scale
            return fake_quantize(x, self.along(given, x.ndim), learnt=self.shift is not None, elements=self.elements(x))

    def elements(self, x: Tensor) -> int:
        """How many values share a scale: of one image, or of one channel."""
        return int(x.numel() // max(1, x.shape[0] if self.axis is None and x.ndim else self.start.numel()))

    def along(self, scale: Tensor, rank: int) -> Tensor:
        """Shape the scales so that they broadcast along their axis."""
        if self.axis is None or not scale.ndim:
            return scale
        shape = [1] * rank
        shape[self.axis] = -1
        return scale.reshape(shape)


class WeightQuantizer(Quantizer):
    """Fake quantization of a weight whose scales follow it: ``max|w| / 127`` anew at each step.

    Where scales keep few bits, the largest weight of each channel is moved to ``127 * scale``: so the scale is still
    ``max|w| / 127`` for whoever looks at the weight alone, as TensorRT does with a cache.
    """

    def scale_for(self, x: Tensor) -> Tensor:
        """Compute the scales of a weight, as :func:`calib.core.quantization.scale_from_amax` does; float32."""
        with torch.no_grad():
            amax = self._amax(x.float()).double()
            scale = (torch.where(amax == 0, torch.full_like(amax, DEAD_AMAX), amax) / QUANT_MAX).float()
            alive = coarse(scale.clamp_min(SCALE_FLOOR["float32"]), self.bits)
            return torch.where(amax == 0, scale, alive)

    def forward(self, x: Tensor, scale: Tensor | None = None) -> Tensor:
        """Fake-quantize; the gradient is the identity, for nothing is clipped."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            with torch.no_grad():
                given = self.scale_for(x) if scale is None else scale
                values = quantize_exactly(self.settled(x, given), self.along(given, x.ndim))
            return _Straight.apply(x, values)

    def settled(self, x: Tensor, scale: Tensor) -> Tensor:
        """Move the largest weight of each channel to ``127 * scale``, where scales keep few bits."""
        if self.bits >= FLOAT_BITS:
            return x
        largest = x.abs() >= self.along(self._amax(x), x.ndim).clamp_min(torch.finfo(torch.float32).tiny)
        return torch.where(largest, torch.sign(x) * self.along(scale, x.ndim) * QUANT_MAX, x)

    def _amax(self, weight: Tensor) -> Tensor:
        others = [place for place in range(weight.ndim) if self.axis is None or place != self.axis % weight.ndim]
        magnitude = weight.detach().abs()
        return magnitude.amax(others) if others else magnitude
