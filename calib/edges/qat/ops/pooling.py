"""Pooling with every padding ONNX knows, and its inverse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, numbers
from calib.edges.qat.ops.layers import pad_list, window_pads

MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}
UNPOOLS = {1: F.max_unpool1d, 2: F.max_unpool2d, 3: F.max_unpool3d}


@dataclass(frozen=True)
class Window:
    """A pooling window: a length, a step and a dilation an axis, padding before and behind, and what rounding up adds.

    Attributes:
        kernel: window lengths.
        strides: steps.
        dilations: distances inside a window.
        before: padding before each axis.
        behind: padding behind each axis.
        surplus: what windows of ``ceil_mode`` reach beyond the padding.
    """

    kernel: list[int]
    strides: list[int]
    dilations: list[int]
    before: list[int]
    behind: list[int]
    surplus: list[int]

    @property
    def plain(self) -> bool:
        """Whether PyTorch's own padding does it."""
        fits = all(2 * pad <= length for pad, length in zip(self.before, self.kernel, strict=True))
        return self.before == self.behind and not any(self.surplus) and fits


def _window(call: Call, sizes: Sequence[int]) -> Window:
    kernel = call.ints("kernel_shape") or []
    rank = len(kernel)
    strides, dilations = (call.ints(name, [1] * rank) or [] for name in ("strides", "dilations"))
    before, behind = window_pads(call, sizes, kernel, strides, dilations)
    surplus = [0] * rank
    if call.get("ceil_mode", 0):
        axes = zip(sizes, kernel, strides, dilations, before, behind, strict=True)
        surplus = [_surplus(*axis) for axis in axes]
    return Window(kernel, strides, dilations, before, behind, surplus)


def _surplus(size: int, length: int, stride: int, dilation: int, before: int, behind: int) -> int:
    """How far the last window of ``ceil_mode`` reaches; one that starts in the padding behind is left out."""
    reach = dilation * (length - 1) + 1
    count = math.ceil((size + before + behind - reach) / stride) + 1
    if (count - 1) * stride >= size + before:
        count -= 1
    return max(0, (count - 1) * stride + reach - size - before - behind)


def _padded(x: Tensor, window: Window, value: float) -> Tensor:
    ends = [pad + more for pad, more in zip(window.behind, window.surplus, strict=True)]
    return F.pad(x, pad_list(window.before, ends), value=value)


def _max_pool(call: Call, x: Tensor) -> Tensor | tuple[Tensor, Tensor]:
    window = _window(call, x.shape[2:])
    pool = MAX_POOLS[len(window.kernel)]
    if len(call.node.outputs) > 1 and call.node.outputs[1]:
        return _with_positions(call, x, window)
    if window.plain:
        return pool(x, window.kernel, window.strides, window.before, window.dilations)
    return pool(_padded(x, window, -math.inf), window.kernel, window.strides, 0, window.dilations)


def _with_positions(call: Call, x: Tensor, window: Window) -> tuple[Tensor, Tensor]:
    """Pool and say where the largest values lay, counted over the whole tensor as ONNX does."""
    if not window.plain:
        raise call.refuse("symmetric padding where the positions of the largest values are asked for", "another")
    pool = MAX_POOLS[len(window.kernel)]
    values, inside = pool(x, window.kernel, window.strides, window.before, window.dilations, return_indices=True)
    if call.get("storage_order", 0) and x.ndim == 4:  # columns first
        inside = inside % x.shape[3] * x.shape[2] + inside // x.shape[3]
    return values, inside + _plane_starts(x)


def _plane_starts(x: Tensor) -> Tensor:
    planes = torch.arange(x.shape[0] * x.shape[1], device=x.device) * math.prod(x.shape[2:])
    return planes.reshape(x.shape[0], x.shape[1], *[1] * (x.ndim - 2))


def _max_unpool(call: Call, x: Tensor, positions: Tensor, shape: Tensor | None = None) -> Tensor:
    window = _window(call, x.shape[2:])
    axes = zip(x.shape[2:], window.kernel, window.strides, window.before, window.behind, strict=True)
    natural = [(size - 1) * stride + length - one - other for size, length, stride, one, other in axes]
    size = natural if shape is None else numbers(shape)[2:]
    planes = torch.arange(x.shape[0] * x.shape[1], device=x.device).reshape(x.shape[0], x.shape[1])
    inside = positions - (planes * math.prod(natural)).reshape(*planes.shape, *[1] * (x.ndim - 2))
    flat = x.new_zeros(x.shape[0], x.shape[1], math.prod(natural))
    flat = flat.scatter(2, inside.flatten(2), x.flatten(2)).reshape(*x.shape[:2], *natural)
    return F.pad(flat, pad_list([0] * len(size), [want - have for want, have in zip(size, natural, strict=True)]))


def _average_pool(call: Call, x: Tensor) -> Tensor:
    window = _window(call, x.shape[2:])
    with_pad = bool(call.get("count_include_pad", 0))
    pool = AVERAGE_POOLS[len(window.kernel)]
    dilated = any(item != 1 for item in window.dilations)
    if window.plain and not dilated:
        return pool(x, window.kernel, window.strides, window.before, False, with_pad)
    summed = _box_sum(_padded(x, window, 0.0), window)
    ones = torch.ones_like(x[:1, :1])
    if with_pad:
        inner = F.pad(ones, pad_list(window.before, window.behind), value=1.0)
        counted = F.pad(inner, pad_list([0] * len(window.kernel), window.surplus))
    else:
        counted = _padded(ones, window, 0.0)
    return summed / _box_sum(counted, window)


def _box_sum(x: Tensor, window: Window) -> Tensor:
    """Sum every window; a convolution with ones, one channel at a time."""
    rank, channels = len(window.kernel), x.shape[1]
    ones = torch.ones(1, 1, *window.kernel, dtype=x.dtype, device=x.device)
    conv = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}[rank]
    flat = x.reshape(-1, 1, *x.shape[2:])
    summed = conv(flat, ones, None, window.strides, 0, window.dilations)
    return summed.reshape(-1, channels, *summed.shape[2:])


def _lp_pool(call: Call, x: Tensor) -> Tensor:
    power = call.get("p", 2)
    window = _window(call, x.shape[2:])
    return _box_sum(_padded(x.abs().pow(power), window, 0.0), window).pow(1 / power)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


OPERATORS: Mapping[str, Operator] = {
    "MaxPool": _max_pool, "MaxUnpool": _max_unpool, "AveragePool": _average_pool, "LpPool": _lp_pool,
    "GlobalAveragePool": lambda _, x: x.mean(_spatial(x), keepdim=True),
    "GlobalMaxPool": lambda _, x: x.amax(_spatial(x), keepdim=True),
    "GlobalLpPool": lambda call, x: torch.linalg.vector_norm(x, call.get("p", 2), _spatial(x), keepdim=True),
}  # fmt: skip
