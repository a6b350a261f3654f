"""Where the elements of a resized axis lie in the original, and with what weights: pure arithmetic of ONNX Resize.

Coordinates are computed in float32, as runtimes compute them, so that rounding falls on the same side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Sampling:
    """How one axis is resized.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        transform: ``coordinate_transformation_mode``.
        length: of the axis.
        resized: length after.
        scale: as given, or ``resized / length``.
        nearest: rounding of ``nearest``.
        cubic: the coefficient ``a``.
        exclude: whether elements outside weigh nothing.
        antialias: whether shrinking widens the window.
        start: of the region of interest, 0..1.
        end: of the region of interest, 0..1.
    """

    mode: str
    transform: str
    length: int
    resized: int
    scale: float
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75
    exclude: bool = False
    antialias: bool = False
    start: float = 0.0
    end: float = 1.0

    @property
    def trivial(self) -> bool:
        """Whether the axis stays as it is."""
        return self.length == self.resized and self.scale == 1 and self.transform != "tf_crop_and_resize"


def coordinates(axis: Sampling) -> NDArray[np.float32]:
    """Place each resized element in the original, float32 ``[resized]``."""
    x = np.arange(axis.resized, dtype=np.float32)
    if axis.transform in ("align_corners", "tf_crop_and_resize"):
        return _between_corners(axis, x)
    if axis.transform == "pytorch_half_pixel" and axis.resized <= 1:
        return np.zeros_like(x)
    scale, half = np.float32(axis.scale), np.float32(0.5)
    if axis.transform == "asymmetric":
        return x / scale
    if axis.transform == "tf_half_pixel_for_nn":
        return (x + half) / scale
    centred: NDArray[np.float32] = (x + half) / scale - half
    if axis.transform == "half_pixel_symmetric":
        length, one = np.float32(axis.length), np.float32(1)
        centred = centred + length / np.float32(2) * (one - np.float32(axis.resized) / (scale * length))
    return centred


def _between_corners(axis: Sampling, x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Spread the elements from the first to the last, or over a region given as shares of the length."""
    last, most = np.float32(axis.length - 1), np.float32(axis.resized - 1)
    if axis.transform == "align_corners":
        return x * (last / most) if axis.resized > 1 else x
    start, end = np.float32(axis.start), np.float32(axis.end)
    if axis.resized > 1:
        return start * last + x * (end - start) * last / most
    return np.full_like(x, np.float32(0.5) * (start + end) * last)


def nearest_places(axis: Sampling) -> NDArray[np.int64]:
    """Choose the element that each resized one is a copy of, int64 ``[resized]``."""
    x, half = coordinates(axis), np.float32(0.5)
    rounded = {
        "round_prefer_floor": np.ceil(x - half),
        "round_prefer_ceil": np.floor(x + half),
        "floor": np.floor(x),
        "ceil": np.ceil(x),
    }[axis.nearest]
    return np.asarray(np.clip(rounded, 0, axis.length - 1), np.int64)


@lru_cache(maxsize=256)
def weights(axis: Sampling) -> NDArray[np.float32]:
    """Weigh the original elements for each resized one, float32 ``[resized, length]``."""
    x = coordinates(axis).astype(np.float64)
    if axis.antialias and axis.scale < 1:
        return _wide_weights(axis, x)
    taps = np.arange(0, 2) if axis.mode == "linear" else np.arange(-1, 3)
    base = np.floor(x)
    places = (base[:, None] + taps).astype(np.int64)
    values = _kernel(axis, x[:, None] - places)
    outside = (places < 0) | (places >= axis.length)
    if axis.exclude and axis.mode == "cubic":
        values = _normalised(np.where(outside, 0.0, values))
    return _matrix(axis, np.clip(places, 0, axis.length - 1), values)


def _wide_weights(axis: Sampling, x: NDArray[np.float64]) -> NDArray[np.float32]:
    """Stretch the kernel over what a resized element covers; what lies outside counts as the border, or not at all."""
    support = (1.0 if axis.mode == "linear" else 2.0) / axis.scale
    reach = int(np.ceil(support)) + 1
    places = np.floor(x).astype(np.int64)[:, None] + np.arange(-reach, reach + 1)
    values = _kernel(axis, (x[:, None] - places) * axis.scale)
    if axis.exclude:
        values = np.where((places < 0) | (places >= axis.length), 0.0, values)
    return _matrix(axis, np.clip(places, 0, axis.length - 1), _normalised(values))


def _normalised(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Let weights sum to one; where nothing weighs anything they stay zero."""
    totals = values.sum(axis=1, keepdims=True)
    return values / np.where(totals == 0, 1.0, totals)


def _kernel(axis: Sampling, distance: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weigh by distance: a triangle, or Keys' cubic convolution kernel (1981) with coefficient ``a``."""
    d = np.abs(distance)
    if axis.mode == "linear":
        return np.maximum(0.0, 1.0 - d)
    a = axis.cubic
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _matrix(axis: Sampling, places: NDArray[np.int64], values: NDArray[np.float64]) -> NDArray[np.float32]:
    matrix = np.zeros((axis.resized, axis.length))
    rows = np.broadcast_to(np.arange(axis.resized)[:, None], places.shape)
    np.add.at(matrix, (rows, places), values)
    return matrix.astype(np.float32)
