"""What arranges elements and computes shapes; shapes are tensors of whole numbers on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, axes_of, numbers, same_float
from calib.edges.qat.ops.layers import pad_list


def _shape(call: Call, x: Tensor) -> Tensor:
    start, end = int(call.get("start", 0)), call.get("end")
    return torch.tensor(list(x.shape)[start : None if end is None else int(end)], dtype=torch.int64)


def _size(call: Call, x: Tensor) -> Tensor:
    del call
    return torch.tensor(x.numel(), dtype=torch.int64)


def _reshape(call: Call, x: Tensor, shape: Tensor | None = None) -> Tensor:
    wanted = (call.ints("shape") or []) if shape is None else numbers(shape)
    if not call.get("allowzero", 0):
        wanted = [x.shape[axis] if length == 0 else length for axis, length in enumerate(wanted)]
    return x.reshape(wanted)


def _flatten(call: Call, x: Tensor) -> Tensor:
    axis = int(call.get("axis", 1))
    axis = axis + x.ndim if axis < 0 else axis
    rows = 1
    for length in x.shape[:axis]:
        rows *= length
    return x.reshape(rows, -1 if x.numel() else 0)


def _squeeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = axes_of(call, axes)
    return x.squeeze() if chosen is None else x.squeeze(tuple(chosen))


def _unsqueeze(call: Call, x: Tensor, axes: Tensor | None = None) -> Tensor:
    chosen = axes_of(call, axes) or []
    rank = x.ndim + len(chosen)
    for axis in sorted(item % rank for item in chosen):
        x = x.unsqueeze(axis)
    return x


def _concat(call: Call, *parts: Tensor) -> Tensor:
    return torch.cat(same_float(*parts), int(call.get("axis", 1)))


def _split(call: Call, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    axis = int(call.get("axis", 0))
    lengths = call.ints("split") if sizes is None else numbers(sizes)
    if lengths is None:
        count = int(call.get("num_outputs", len(call.node.outputs)))
        step = -(-x.shape[axis] // count)
        lengths = [min(step, max(0, x.shape[axis] - place * step)) for place in range(count)]
    return tuple(torch.split(x, lengths, axis))


def _slice(call: Call, x: Tensor, *given: Tensor | None) -> Tensor:
    """Slice; ends beyond the tensor are cut back, steps may be negative."""
    starts, ends, axes, steps = _slice_ranges(call, given)
    for start, end, axis, step in zip(starts, ends, axes or range(len(starts)), steps, strict=True):
        x = _slice_axis(x, start, end, axis, step)
    return x


def _slice_ranges(
    call: Call, given: Sequence[Tensor | None]
) -> tuple[list[int], list[int], list[int] | None, list[int]]:
    if not given:
        starts, ends = call.ints("starts") or [], call.ints("ends") or []
        return starts, ends, call.ints("axes"), [1] * len(starts)
    parts = [None if item is None else numbers(item) for item in (*given, None, None)[:4]]
    starts, ends = parts[0] or [], parts[1] or []
    return starts, ends, parts[2], parts[3] or [1] * len(starts)


def _slice_axis(x: Tensor, start: int, end: int, axis: int, step: int) -> Tensor:
    length = x.shape[axis]
    first, last, step = slice(start, end, step).indices(length)
    if step < 0 and end >= -length - 1 and end < 0 and end + length >= 0:
        last = end + length
    if step > 0:
        window = [slice(None)] * (axis % x.ndim) + [slice(first, max(first, last), step)]
        return x[tuple(window)]
    places = torch.arange(first, last, step, device=x.device) if first > last else torch.arange(0, device=x.device)
    return x.index_select(axis, places)


def _pad(call: Call, x: Tensor, pads: Tensor | None = None, value: Tensor | None = None, axes: Tensor | None = None
         ) -> Tensor:  # fmt: skip
    amounts = (call.ints("pads") or call.ints("paddings") or []) if pads is None else numbers(pads)
    chosen = list(range(x.ndim)) if axes is None else [axis % x.ndim for axis in numbers(axes)]
    half = len(amounts) // 2
    before, behind = [0] * x.ndim, [0] * x.ndim
    for place, axis in enumerate(chosen):
        before[axis], behind[axis] = amounts[place], amounts[half + place]
    mode = call.get("mode", "constant")
    if mode == "constant":
        fill = call.get("value", 0.0) if value is None else value.item()
        return F.pad(x, pad_list(before, behind), value=fill)
    return _pad_by_copies(call, x, before, behind, mode)


def _pad_by_copies(call: Call, x: Tensor, before: list[int], behind: list[int], mode: str) -> Tensor:
    """Pad with copies of the tensor's own elements, an axis at a time, of any length."""
    for axis, (one, other) in enumerate(zip(before, behind, strict=True)):
        if not one and not other:
            continue
        length = x.shape[axis]
        places = torch.arange(-one, length + other)
        if mode == "edge":
            places = places.clamp(0, length - 1)
        elif mode == "wrap":
            places = places.remainder(length)
        elif mode == "reflect":
            period = max(1, 2 * (length - 1))
            places = places.remainder(period)
            places = torch.where(places >= length, period - places, places)
        else:
            raise call.refuse("mode constant, reflect, edge or wrap", repr(mode))
        x = x.index_select(axis, places.to(x.device))
    return x


def _transpose(call: Call, x: Tensor) -> Tensor:
    return x.permute(call.ints("perm") or list(range(x.ndim))[::-1])


def _expand(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    del call
    return x.expand(torch.broadcast_shapes(tuple(x.shape), tuple(numbers(shape))))


def _tile(call: Call, x: Tensor, repeats: Tensor) -> Tensor:
    del call
    return x.repeat(numbers(repeats))


def _constant_of_shape(call: Call, shape: Tensor) -> Tensor:
    value = call.tensors.get("value", torch.zeros(1))
    return value.reshape(()).expand(numbers(shape)).clone()


def _range(call: Call, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    del call
    return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)


def _depth_to_space(call: Call, x: Tensor) -> Tensor:
    block = int(call.get("blocksize", 1))
    n, c, h, w = x.shape
    if call.get("mode", "DCR") == "DCR":
        parts = x.reshape(n, block, block, c // block**2, h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        parts = x.reshape(n, c // block**2, block, block, h, w).permute(0, 1, 4, 2, 5, 3)
    return parts.reshape(n, c // block**2, h * block, w * block)


def _space_to_depth(call: Call, x: Tensor) -> Tensor:
    block = int(call.get("blocksize", 1))
    n, c, h, w = x.shape
    order = (0, 3, 5, 1, 2, 4) if call.get("mode", "DCR") == "DCR" else (0, 1, 3, 5, 2, 4)
    parts = x.reshape(n, c, h // block, block, w // block, block).permute(order)
    return parts.reshape(n, c * block**2, h // block, w // block)


def _center_crop_pad(call: Call, x: Tensor, shape: Tensor) -> Tensor:
    axes = call.ints("axes") or list(range(x.ndim))
    before, behind = [0] * x.ndim, [0] * x.ndim
    for axis, length in zip(axes, numbers(shape), strict=True):
        more = length - x.shape[axis]
        before[axis] = more // 2 if more > 0 else -(-more // 2)
        behind[axis] = more - before[axis]
    return F.pad(x, pad_list(before, behind))


OPERATORS: Mapping[str, Operator] = {
    "Shape": _shape, "Size": _size, "Reshape": _reshape, "Flatten": _flatten, "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze, "Concat": _concat, "Split": _split, "Slice": _slice, "Pad": _pad,
    "Transpose": _transpose, "Expand": _expand, "Tile": _tile, "ConstantOfShape": _constant_of_shape,
    "Range": _range, "DepthToSpace": _depth_to_space, "SpaceToDepth": _space_to_depth,
    "CenterCropPad": _center_crop_pad,
}  # fmt: skip
