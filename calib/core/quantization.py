"""INT8 arithmetic as TensorRT and ONNX define it: symmetric, scale = amax / 127, round half to even.

Scales are computed in float64 and rounded once to the type they are stored in; one that is too small for that
type gets a floor, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import StatisticsError

QUANT_MIN, QUANT_MAX = -128, 127

SCALE_FLOOR: Mapping[str, float] = {"float32": 2.0**-63, "bfloat16": 2.0**-63, "float16": 2.0**-24}
"""Smallest scale of each type. The product of two float32 scales at the floor is still a normal number;
2**-24 is the smallest number of float16."""

DEAD_AMAX = 1.0
"""Range given to a tensor or channel that was zero throughout. It represents zero exactly, as any range does; should
the tensor be alive on other images after all, values up to 1 survive, where a tiny range would erase them."""


SCALE_BITS = 5
"""Significant bits of the scales of trained networks, see :func:`coarse_scale`."""


def scale_from_amax(amax: float | NDArray[Any], elem_type: str = "float32") -> NDArray[np.float64]:
    """Compute scales that are finite and positive in their stored type.

    Args:
        amax: half-width(s) of the range, >= 0; 0 marks a dead tensor or channel and gets ``DEAD_AMAX``.
        elem_type: type the scale will be stored in: float32, float16 or bfloat16.

    Returns:
        Scales as float64, shape of ``amax``; exact in the stored type. Narrower types get the float32 scale rounded
        once more, so that a network made from a cache and one made from the ranges behind it are the same.

    Raises:
        StatisticsError: an amax is negative, infinite or NaN.
    """
    wide = np.asarray(amax, np.float64)
    if not (np.isfinite(wide).all() and (wide >= 0).all()):
        raise StatisticsError(
            "dynamic range",
            expected="amax finite and >= 0",
            got=f"{float(wide[~(np.isfinite(wide) & (wide >= 0))].flat[0])!r}",
            remedy="calibrate again; inf comes from a float64 buffer read as float32 or from an overflow",
        )
    alive = round_to(np.where(wide == 0, DEAD_AMAX, wide) / QUANT_MAX, "float32")
    return round_to(np.maximum(alive, SCALE_FLOOR[elem_type]), elem_type)


def coarse_scale(scale: float | NDArray[Any], bits: int) -> NDArray[np.float64]:
    """Round scales up to a few significant bits, so that float32 sums of products of such scales come out exactly.

    A product of two INT8 values and two scales of 5 bits has at most 24 bits, and so has a sum of such products as long
    as it stays below ``2**14`` times the larger of them: the order of summation, in which runtimes differ, does not
    matter then, and what one of them computes in float32 is what another computes in INT8.

    Args:
        scale: positive.
        bits: significant bits, 2 to 24; 24 leaves float32 scales as they are.

    Returns:
        float64, shape of ``scale``; at most ``2**(1 - bits)`` of a scale is added.
    """
    mantissa, exponent = np.frexp(np.asarray(scale, np.float64))
    return np.asarray(np.ldexp(np.ceil(mantissa * 2.0**bits) / 2.0**bits, exponent), np.float64)


def round_to(values: NDArray[np.float64], elem_type: str) -> NDArray[np.float64]:
    """Round float64 values to a float type, clamped to its largest number, and return them as float64."""
    if elem_type == "bfloat16":
        bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return rounded.astype(np.uint32).view(np.float32).astype(np.float64)
    dtype = np.dtype(elem_type)
    return np.minimum(values, float(np.finfo(dtype).max)).astype(dtype).astype(np.float64)


def weight_amax(weight: NDArray[Any], axis: int | None) -> NDArray[np.float64]:
    """Find the largest magnitude of a weight, per index of ``axis`` or of the whole tensor.

    Args:
        weight: any float array.
        axis: axis of the output channels, None for per-tensor.

    Returns:
        float64 ``[weight.shape[axis]]``, or a 0-d array per tensor; 0 for a dead channel.

    Raises:
        StatisticsError: the weight holds NaN or infinity.
    """
    others = None if axis is None else tuple(index for index in range(weight.ndim) if index != axis % weight.ndim)
    # Extremes in the stored type need no copy of the weight; NaN survives both.
    with np.errstate(invalid="ignore"):
        high = np.asarray(weight.max(axis=others, initial=0), np.float64)
        low = np.asarray(weight.min(axis=others, initial=0), np.float64)
    amax: NDArray[np.float64] = np.maximum(high, -low)
    if not np.isfinite(amax).all():
        raise StatisticsError(
            "weight",
            expected="finite values",
            got=f"{int((~np.isfinite(weight)).sum())} NaN or infinite",
            remedy="export the network again from a sound checkpoint",
        )
    return np.asarray(amax)


def quantize(values: NDArray[Any], scale: float | NDArray[Any], axis: int | None = None) -> NDArray[np.int8]:
    """Quantize: ``clamp(round_half_even(x / scale), -128, 127)``, division in float32 as runtimes do it.

    Args:
        values: float array; NaN becomes 0.
        scale: positive scalar, or ``[values.shape[axis]]``.
        axis: axis of a per-channel scale.
    """
    divided = np.asarray(values, np.float32) / _along(scale, values.ndim, axis)
    rounded = np.nan_to_num(np.clip(np.rint(divided), QUANT_MIN, QUANT_MAX), nan=0.0)
    return np.asarray(rounded, np.int8)


def dequantize(values: NDArray[np.int8], scale: float | NDArray[Any], axis: int | None = None) -> NDArray[np.float32]:
    """Multiply INT8 values by their scale, in float32."""
    product: NDArray[np.float32] = values.astype(np.float32) * _along(scale, values.ndim, axis)
    return product


def fake_quantize(values: NDArray[Any], scale: float | NDArray[Any], axis: int | None = None) -> NDArray[np.float32]:
    """Quantize and dequantize: the float32 values that an INT8 tensor stands for.

    The error is at most ``scale / 2`` wherever ``-128.5 * scale <= x <= 127.5 * scale``.
    """
    return dequantize(quantize(values, scale, axis), scale, axis)


def _along(scale: float | NDArray[Any], rank: int, axis: int | None) -> NDArray[np.float32]:
    narrow = np.asarray(scale, np.float32)
    if axis is None or narrow.ndim == 0:
        return narrow
    shape = [1] * rank
    shape[axis % rank] = narrow.size
    return narrow.reshape(shape)
