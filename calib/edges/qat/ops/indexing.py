"""Reading and writing by position, sorting, sampling."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, aligned, numbers, same_float

REDUCTIONS = {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"}


def _positions(indices: Tensor, length: int) -> Tensor:
    """Count negative positions from the end."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + length, indices)


def _gather(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = int(call.get("axis", 0)) % x.ndim
    x, indices = aligned(x, indices)
    places = _positions(indices, x.shape[axis])
    shape = (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])
    return x.index_select(axis, places.reshape(-1)).reshape(shape)


def _gather_elements(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    axis = int(call.get("axis", 0))
    x, indices = aligned(x, indices)
    return torch.gather(x, axis, _positions(indices, x.shape[axis]))


def _gather_nd(call: Call, x: Tensor, indices: Tensor) -> Tensor:
    batch = int(call.get("batch_dims", 0))
    x, indices = aligned(x, indices)
    if not batch:
        return x[_per_axis(x, indices, 0)]
    lead = x.shape[:batch]
    flat, places = x.reshape(-1, *x.shape[batch:]), indices.reshape(-1, *indices.shape[batch:])
    picked = [row[_per_axis(row, place, 0)] for row, place in zip(flat, places, strict=True)]
    return torch.stack(picked).reshape(*lead, *picked[0].shape)


def _per_axis(x: Tensor, indices: Tensor, first: int) -> tuple[Tensor, ...]:
    return tuple(_positions(indices[..., axis], x.shape[first + axis]) for axis in range(indices.shape[-1]))


def _scatter_nd(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    """Write at positions; with a reduction, through positions in the flattened leading axes."""
    x, indices, updates = same_float(x, indices, updates)
    mode, places = call.get("reduction", "none"), _per_axis(x, indices, 0)
    if mode in ("none", "add"):
        return x.index_put(places, updates, accumulate=mode == "add")
    depth = len(places)
    rows = torch.zeros_like(places[0])
    for axis, place in enumerate(places):
        rows = rows * x.shape[axis] + place
    flat = x.reshape(math.prod(x.shape[:depth]), -1)
    target = rows.reshape(-1, 1).expand(-1, flat.shape[1])
    written = flat.scatter_reduce(0, target, updates.reshape(target.shape), REDUCTIONS[mode])
    return written.reshape(x.shape)


def _scatter_elements(call: Call, x: Tensor, indices: Tensor, updates: Tensor) -> Tensor:
    axis, mode = int(call.get("axis", 0)), call.get("reduction", "none")
    x, indices, updates = same_float(x, indices, updates)
    places = _positions(indices, x.shape[axis])
    if mode == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, REDUCTIONS[mode])


def _one_hot(call: Call, indices: Tensor, depth: Tensor, values: Tensor) -> Tensor:
    axis, count = int(call.get("axis", -1)), int(depth.reshape(()).item())
    places = _positions(indices, count).unsqueeze(-1)
    hot = (places == torch.arange(count, device=indices.device)).movedim(-1, axis)
    hot, off, on = aligned(hot, values[0], values[1])
    return torch.where(hot, on, off)


def _top_k(call: Call, x: Tensor, k: Tensor | None = None) -> tuple[Tensor, Tensor]:
    count = int(call.get("k", 1)) if k is None else int(k.reshape(()).item())
    axis = int(call.get("axis", -1))
    found = torch.sort(x, dim=axis, descending=bool(call.get("largest", 1)), stable=True)
    return found.values.narrow(axis, 0, count), found.indices.narrow(axis, 0, count)


def _arg(call: Call, x: Tensor, *, largest: bool) -> Tensor:
    """Find the first (or last) position of the extreme."""
    axis, keep = int(call.get("axis", 0)), bool(call.get("keepdims", 1))
    function = torch.argmax if largest else torch.argmin
    if not call.get("select_last_index", 0):
        return function(x, axis, keepdim=keep)
    return x.shape[axis] - 1 - function(x.flip(axis), axis, keepdim=keep)


def _cum_sum(call: Call, x: Tensor, axis: Tensor) -> Tensor:
    place = int(axis.reshape(()).item())
    x = x.flip(place) if call.get("reverse", 0) else x
    summed = torch.cumsum(x, place, dtype=x.dtype)
    summed = summed - x if call.get("exclusive", 0) else summed
    return summed.flip(place) if call.get("reverse", 0) else summed


def _non_zero(call: Call, x: Tensor) -> Tensor:
    del call
    return torch.nonzero(x).transpose(0, 1)


def _trilu(call: Call, x: Tensor, k: Tensor | None = None) -> Tensor:
    offset = 0 if k is None else numbers(k)[0]
    return torch.triu(x, offset) if call.get("upper", 1) else torch.tril(x, offset)


def _eye_like(call: Call, x: Tensor) -> Tensor:
    from calib.edges.qat.ops.elementwise import TYPES

    kind = TYPES.get(int(call.get("dtype", 0)), x.dtype)
    rows = torch.arange(x.shape[0], device=x.device).unsqueeze(1) + int(call.get("k", 0))
    return (rows == torch.arange(x.shape[1], device=x.device)).to(kind)


def _grid_sample(call: Call, x: Tensor, grid: Tensor) -> Tensor:
    names = {"linear": "bilinear", "cubic": "bicubic"}
    mode = call.get("mode", "bilinear")
    x, grid = same_float(x, grid)
    corners = bool(call.get("align_corners", 0))
    return F.grid_sample(x, grid, names.get(mode, mode), call.get("padding_mode", "zeros"), corners)


OPERATORS: Mapping[str, Operator] = {
    "Gather": _gather, "GatherElements": _gather_elements, "GatherND": _gather_nd, "ScatterND": _scatter_nd,
    "ScatterElements": _scatter_elements, "Scatter": _scatter_elements, "OneHot": _one_hot, "TopK": _top_k,
    "ArgMax": lambda call, x: _arg(call, x, largest=True), "ArgMin": lambda call, x: _arg(call, x, largest=False),
    "CumSum": _cum_sum, "NonZero": _non_zero, "Trilu": _trilu, "EyeLike": _eye_like, "GridSample": _grid_sample,
}  # fmt: skip
