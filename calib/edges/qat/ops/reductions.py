"""Reductions over axes, and normalisations."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, axes_of


def _reduce(function: Callable[[Tensor, list[int], bool], Tensor]) -> Operator:
    def apply(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
        chosen = axes_of(call, axes)
        if not chosen and call.get("noop_with_empty_axes", 0):
            return x
        chosen = chosen or list(range(x.ndim))
        return function(x, chosen, bool(call.get("keepdims", 1))) if chosen else x

    return apply


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    for axis in sorted((item % x.ndim for item in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep, dtype=x.dtype)
    return x


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


REDUCTIONS: Mapping[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceMean": lambda x, axes, keep: torch.mean(x, axes, keepdim=keep),
    "ReduceSum": _sum,
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: torch.sqrt(_sum(x * x, axes, keep)),
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
    "ReduceLogSum": lambda x, axes, keep: torch.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
}


def _batch_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """Normalise by the stored statistics, as inference does; they stay as they are in training."""
    if call.get("training_mode", 0) or len([name for name in call.node.outputs if name]) > 1:
        raise call.refuse("batch normalisation for inference", "one in training mode")
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, float(call.get("epsilon", 1e-5)))


def _instance_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    return F.instance_norm(x, weight=scale, bias=bias, eps=float(call.get("epsilon", 1e-5)))


def _layer_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor | tuple[Tensor, ...]:
    """Normalise from an axis on; the mean and the inverse deviation are further outputs where they are asked for."""
    axis, epsilon = int(call.get("axis", -1)) % x.ndim, float(call.get("epsilon", 1e-5))
    normal = F.layer_norm(x, x.shape[axis:], eps=epsilon)
    answer = normal * scale if bias is None else normal * scale + bias
    if len(call.node.outputs) == 1:
        return answer
    axes = list(range(axis, x.ndim))
    mean = torch.mean(x, axes, keepdim=True)
    inverse = torch.rsqrt(torch.mean((x - mean) ** 2, axes, keepdim=True) + epsilon)
    return answer, mean, inverse


def _group_norm(call: Call, x: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
    """Normalise groups of channels; before operator set 21 scale and bias hold one value a group."""
    groups = int(call.get("num_groups", 1))
    if scale.numel() == groups and groups != x.shape[1]:
        each = x.shape[1] // groups
        scale, bias = scale.repeat_interleave(each), bias.repeat_interleave(each)
    return F.group_norm(x, groups, scale, bias, float(call.get("epsilon", 1e-5)))


def _rms_norm(call: Call, x: Tensor, scale: Tensor) -> Tensor:
    axes = list(range(int(call.get("axis", -1)) % x.ndim, x.ndim))
    return x * torch.rsqrt(torch.mean(x * x, axes, keepdim=True) + float(call.get("epsilon", 1e-5))) * scale


def _lp_norm(call: Call, x: Tensor) -> Tensor:
    norm = torch.linalg.vector_norm(x, int(call.get("p", 2)), int(call.get("axis", -1)), keepdim=True)
    return torch.where(norm > 0, x / norm, torch.zeros_like(x))


def _mean_variance(call: Call, x: Tensor) -> Tensor:
    axes = call.ints("axes", [0, 2, 3]) or []
    centred = x - torch.mean(x, axes, keepdim=True)
    return centred / (torch.sqrt(torch.mean(centred * centred, axes, keepdim=True)) + 1e-9)


def _lrn(call: Call, x: Tensor) -> Tensor:
    size = int(call.get("size", 1))
    before, behind = (size - 1) // 2, size - 1 - (size - 1) // 2
    squares = F.pad((x * x).unsqueeze(1), [*[0] * (2 * (x.ndim - 2)), before, behind])
    summed = sum(squares[:, 0, place : place + x.shape[1]] for place in range(size))
    scale = call.get("bias", 1.0) + call.get("alpha", 1e-4) / size * summed
    return x / torch.pow(scale, call.get("beta", 0.75))


OPERATORS: Mapping[str, Operator] = {
    **{name: _reduce(function) for name, function in REDUCTIONS.items()},
    "BatchNormalization": _batch_norm, "InstanceNormalization": _instance_norm, "LayerNormalization": _layer_norm,
    "GroupNormalization": _group_norm, "RMSNormalization": _rms_norm, "LpNormalization": _lp_norm,
    "MeanVarianceNormalization": _mean_variance, "LRN": _lrn,
}  # fmt: skip
