"""Resize and Upsample: PyTorch's own interpolation where it computes the same, exact weights where not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, numbers
from calib.edges.qat.ops.sampling import Sampling, coordinates, nearest_places, weights

CROP = "tf_crop_and_resize"
MODES = {"nearest": "nearest", "linear": "linear", "bilinear": "linear", "cubic": "cubic"}


def _resize(call: Call, x: Tensor, *given: Tensor | None) -> Tensor:
    axes = _plan(call, x, given)
    if all(axis.trivial for axis in axes.values()):
        return x
    if call.get("antialias", 0) == 0:
        fast = _fast(x, {place: axis for place, axis in axes.items() if not axis.trivial})
        if fast is not None:
            return fast
    answer = x
    for place, axis in axes.items():
        if not axis.trivial:
            answer = _resize_axis(answer, place, axis)
    return _extrapolated(call, answer, axes) if call.get("coordinate_transformation_mode") == CROP else answer


def _plan(call: Call, x: Tensor, given: Sequence[Tensor | None]) -> dict[int, Sampling]:
    """Read what shall become of each axis."""
    roi, scales, sizes = _inputs(call, given)
    places = [axis % x.ndim for axis in call.ints("axes") or range(x.ndim)]
    lengths = [x.shape[place] for place in places]
    if sizes is not None:
        sizes, scales = _aspect(call, lengths, sizes)
    elif scales is not None:
        sizes = [
            math.floor(np.float32(length) * np.float32(scale)) for length, scale in zip(lengths, scales, strict=True)
        ]
    else:
        raise call.refuse("scales or sizes", "neither")
    mode, old = MODES[str(call.get("mode", "nearest"))], call.opset < 11
    base = Sampling(
        mode=mode,
        transform="asymmetric" if old else str(call.get("coordinate_transformation_mode", "half_pixel")),
        length=1,
        resized=1,
        scale=1.0,
        nearest="floor" if old else str(call.get("nearest_mode", "round_prefer_floor")),
        cubic=float(call.get("cubic_coeff_a", -0.75)),
        exclude=bool(call.get("exclude_outside", 0)),
        antialias=bool(call.get("antialias", 0)),
    )
    starts, ends = _region(roi, len(places))
    return {
        place: replace(base, length=length, resized=size, scale=float(scale), start=start, end=end)
        for place, length, size, scale, start, end in zip(places, lengths, sizes, scales, starts, ends, strict=True)
    }


def _inputs(
    call: Call, given: Sequence[Tensor | None]
) -> tuple[list[float] | None, list[float] | None, list[int] | None]:
    """Sort the optional inputs out: region, scales, sizes."""
    if call.opset < 11 or call.node.op_type == "Upsample":
        scales = given[0] if given else None
        return None, _floats(scales) if scales is not None else [float(item) for item in call.get("scales", ())], None
    roi, scales, sizes = (*given, None, None, None)[:3]
    wanted = numbers(sizes) if sizes is not None and sizes.numel() else None
    return (
        _floats(roi) if roi is not None and roi.numel() else None,
        _floats(scales) if scales is not None and scales.numel() else None,
        wanted,
    )


def _floats(tensor: Tensor) -> list[float]:
    return [float(item) for item in tensor.reshape(-1).tolist()]


def _aspect(call: Call, lengths: list[int], sizes: list[int]) -> tuple[list[int], list[float]]:
    """Take the sizes, or one scale for all axes that fits inside or around them."""
    policy = call.get("keep_aspect_ratio_policy", "stretch")
    scales = [float(np.float32(size) / np.float32(length)) for size, length in zip(sizes, lengths, strict=True)]
    if policy == "stretch":
        return sizes, scales
    one = min(scales) if policy == "not_larger" else max(scales)
    return [math.floor(length * one + 0.5) for length in lengths], [one] * len(lengths)


def _region(roi: list[float] | None, rank: int) -> tuple[list[float], list[float]]:
    return ([0.0] * rank, [1.0] * rank) if roi is None else (roi[:rank], roi[rank:])


def _fast(x: Tensor, axes: Mapping[int, Sampling]) -> Tensor | None:
    """Let PyTorch interpolate pictures where its sampling is the one asked for."""
    if x.ndim != 4 or not set(axes) <= {2, 3} or not x.is_floating_point():
        return None
    size = [axes[place].resized if place in axes else x.shape[place] for place in (2, 3)]
    if all(axis.mode == "nearest" and _copies_evenly(axis) for axis in axes.values()):
        return F.interpolate(x, size, mode="nearest")
    if all(map(_is_half_pixel, axes.values())):
        return F.interpolate(x, size, mode="bilinear", align_corners=False)
    if all(_is_linear(axis) and axis.transform == "align_corners" for axis in axes.values()):
        return F.interpolate(x, size, mode="bilinear", align_corners=True)
    return None


def _is_linear(axis: Sampling) -> bool:
    """Whether an axis is interpolated linearly over its whole length."""
    return axis.mode == "linear" and abs(axis.length * axis.scale - axis.resized) < 1e-3


def _is_half_pixel(axis: Sampling) -> bool:
    longer = axis.transform == "pytorch_half_pixel" and axis.resized > 1
    return _is_linear(axis) and (longer or axis.transform in ("half_pixel", "half_pixel_symmetric"))


def _copies_evenly(axis: Sampling) -> bool:
    """Whether nearest sampling is ``floor(i * length / resized)``, which PyTorch computes."""
    if axis.resized % axis.length and axis.length % axis.resized:
        return False
    wanted = np.arange(axis.resized) * axis.length // axis.resized
    return bool(np.array_equal(nearest_places(axis), wanted))


def _resize_axis(x: Tensor, place: int, axis: Sampling) -> Tensor:
    if axis.mode == "nearest":
        return x.index_select(place, torch.from_numpy(nearest_places(axis)).to(x.device))
    matrix = torch.from_numpy(weights(axis)).to(x.device, x.dtype if x.is_floating_point() else torch.float32)
    moved = torch.matmul(x.movedim(place, -1).to(matrix.dtype), matrix.t()).movedim(-1, place)
    return moved if x.is_floating_point() else moved.to(x.dtype)


def _extrapolated(call: Call, answer: Tensor, axes: Mapping[int, Sampling]) -> Tensor:
    """Fill what lies outside the original with one value."""
    value = float(call.get("extrapolation_value", 0.0))
    for place, axis in axes.items():
        x = coordinates(axis)
        outside = torch.from_numpy((x < 0) | (x > axis.length - 1)).to(answer.device)
        if bool(outside.any()):
            shape = [-1 if other == place else 1 for other in range(answer.ndim)]
            answer = answer.masked_fill(outside.reshape(shape), value)
    return answer


OPERATORS: Mapping[str, Operator] = {"Resize": _resize, "Upsample": _resize}
