"""What the painter leaves behind: per pixel the nearest surface, its class and its distance.

Shapes are painted from far to near. Each shape is one binary mask, and the same mask writes the surface and the
label, so that labels are exact at the image's own resolution. Light comes later (:mod:`calib.demo.optics`).
"""

from __future__ import annotations

import math

import cv2
import numpy as np
from numpy.typing import NDArray

Colour = tuple[float, float, float]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

ALBEDO = slice(0, 3)
SUN = 3
AMBIENT = 4
RETRO = 5
EMISSION = slice(6, 9)
DEPTH = 9
CHANNELS = 10

SUBPIXEL_BITS = 4
FAR_PIXELS = 8192.0
BLACK: Colour = (0.0, 0.0, 0.0)


def surface(
    albedo: Colour, *, sun: float = 1.0, ambient: float = 1.0, emission: Colour = BLACK, retro: float = 1.0
) -> Floats:
    """Describe a surface as float32 ``[10]``: its depth is filled in by the painter.

    Args:
        albedo: share of light sent back, linear RGB in 0..1.
        sun: share of the direct sun that reaches it, 0 in shadow.
        ambient: share of the sky's light that reaches it.
        emission: own light, linear RGB; 1.0 is a white wall at noon.
        retro: how much of the camera car's headlights comes straight back (sign foils: more than 1).
    """
    return np.array([*albedo, sun, ambient, retro, *emission, 0.0], np.float32)


class Canvas:
    """Surfaces float32 ``[rows, columns, 10]`` and labels uint8 ``[rows, columns]``."""

    def __init__(self, rows: int, columns: int) -> None:
        self.surfaces: Floats = np.zeros((rows, columns, CHANNELS), np.float32)
        self.label: NDArray[np.uint8] = np.zeros((rows, columns), np.uint8)
        self.rows, self.columns = rows, columns

    def stamp(self, mask: Mask, top: int, left: int, material: Floats, depth: float | Floats, label: int) -> None:
        """Paint a mask that lies inside the image.

        Args:
            mask: bool ``[h, w]``.
            top: first row of the mask in the image.
            left: first column of the mask in the image.
            material: a surface ``[10]``, or one a pixel ``[h, w, 10]``.
            depth: distance in metres, one number or ``[h, w]``.
            label: class id.
        """
        height, width = mask.shape
        window = (slice(top, top + height), slice(left, left + width))
        below = self.surfaces[window]
        below[mask] = material if material.ndim == 1 else material[mask]
        below[..., DEPTH][mask] = depth if isinstance(depth, float) else depth[mask]
        self.label[window][mask] = label

    def polygon(self, points: NDArray[np.float64], material: Floats, depth: float, label: int) -> None:
        """Fill a polygon ``[N, 2]`` of pixel coordinates, column first; parts outside the image are cut off."""
        cut = self._cut(points)
        if cut is not None:
            self.stamp(*cut, material, depth, label)

    def shade(self, points: NDArray[np.float64], sun: float, ambient: float) -> None:
        """Darken what is painted so far inside a polygon: a shadow. Labels stay."""
        cut = self._cut(points)
        if cut is not None:
            mask, top, left = cut
            below = self.surfaces[top : top + mask.shape[0], left : left + mask.shape[1]]
            below[..., SUN][mask] *= np.float32(sun)
            below[..., AMBIENT][mask] *= np.float32(ambient)

    def _cut(self, points: NDArray[np.float64]) -> tuple[Mask, int, int] | None:
        """Rasterise a polygon: its mask, cut to the image, with the mask's top row and left column."""
        window = self._window(points)
        if window is None:
            return None
        top, left, height, width = window
        mask = np.zeros((height, width), np.uint8)
        cv2.fillPoly(mask, [_fixed_point(_inset(points) - (left, top))], 1, lineType=cv2.LINE_8, shift=SUBPIXEL_BITS)
        return mask.view(bool), top, left

    def _window(self, points: NDArray[np.float64]) -> tuple[int, int, int, int] | None:
        """Cut the bounding box of ``points`` to the image: top, left, height, width; None when nothing is left."""
        low_x, low_y = points.min(axis=0).tolist()
        high_x, high_y = points.max(axis=0).tolist()
        left, top = max(math.floor(low_x), 0), max(math.floor(low_y), 0)
        right, bottom = min(math.ceil(high_x) + 1, self.columns), min(math.ceil(high_y) + 1, self.rows)
        return (top, left, bottom - top, right - left) if right > left and bottom > top else None


def _inset(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Draw a polygon in by half a pixel: OpenCV fills every pixel that the outline touches, which adds as much."""
    centre = (points.min(axis=0) + points.max(axis=0)) / 2.0
    offset = points - centre
    return np.asarray(centre + np.copysign(np.maximum(np.abs(offset) - 0.5, 0.0), offset))


def _fixed_point(points: NDArray[np.float64]) -> NDArray[np.int32]:
    scaled = np.clip(points, -FAR_PIXELS, FAR_PIXELS) * (1 << SUBPIXEL_BITS)
    return np.rint(scaled).astype(np.int32)
