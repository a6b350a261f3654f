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


class _Rounded(torch.autograd.Function):
    """Fake quantization on a fixed scale; gradients pass where nothing is clipped."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor) -> Tensor:
        levels = torch.round(x / scale)
        ctx.save_for_backward((levels >= QUANT_MIN) & (levels <= QUANT_MAX))
        return levels.clamp_(QUANT_MIN, QUANT_MAX).mul_(scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (inside,) = ctx.saved_tensors
        return grad * inside, None


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
        scale: float32, one value or broadcasting with ``x``.
        learnt: whether the scale gets a gradient.
        elements: N of LSQ's gradient scale: values of one image (activations) or of one channel (weights).
    """
    if not torch.is_grad_enabled():
        return quantize_exactly(x, scale)
    if learnt:
        return _Learnt.apply(x, scale, 1.0 / math.sqrt(max(1, elements) * QUANT_MAX))
    return _fused(x, scale) if scale.numel() == 1 else _Rounded.apply(x, scale)


class Quantizer(nn.Module):
    """Fake quantization of one tensor.

    Args:
        scale: float64 scales to start from, 0-d or ``[C]``, exact in float32.
        axis: axis of the channels, None for a single scale.
        learnt: whether training moves the scales.
    """

    def __init__(self, scale: NDArray[np.float64], axis: int | None, *, learnt: bool) -> None:
        super().__init__()
        self.axis = axis
        self.register_buffer("start", torch.tensor(np.asarray(scale), dtype=torch.float32))
        self.shift = nn.Parameter(torch.zeros_like(self.start)) if learnt else None

    @property
    def scale(self) -> Tensor:
        """The scales, float32, 0-d or ``[C]``."""
        if self.shift is None:
            return self.start
        return self.start * torch.exp(self.shift.clamp(-FARTHEST, FARTHEST))

    def forward(self, x: Tensor) -> Tensor:
        """Fake-quantize in float32, whatever mixed precision does around it."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            scale = self.along(self.scale, x.ndim)
            return fake_quantize(x, scale, learnt=self.shift is not None, elements=self.elements(x))

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
    """Fake quantization of a weight whose scales follow it: ``max|w| / 127`` anew at each step."""

    def forward(self, x: Tensor) -> Tensor:
        """Fake-quantize; the gradient is the identity, for nothing is clipped."""
        with torch.autocast(x.device.type, enabled=False):
            x = x.float()
            scale = self.along(self.following(x), x.ndim)
            return fake_quantize(x, scale, learnt=False, elements=1)

    def following(self, weight: Tensor) -> Tensor:
        """Compute the scales of a weight, as :func:`calib.core.quantization.scale_from_amax` does; float32."""
        others = [place for place in range(weight.ndim) if self.axis is None or place != self.axis % weight.ndim]
        magnitude = weight.detach().abs()
        amax = (magnitude.amax(others) if others else magnitude).double()
        alive = torch.where(amax == 0, torch.full_like(amax, DEAD_AMAX), amax)
        return (alive / QUANT_MAX).float().clamp_min(SCALE_FLOOR["float32"])
