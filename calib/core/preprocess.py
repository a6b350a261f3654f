"""Pixels to network input: one shared function for calibration, evaluation and deployment checks.

Order of work: colour order, resize on uint8, then ``(value * scale - mean) / std``. Resizing happens before the
conversion to float because training pipelines do so (OpenCV and PIL resize uint8 pictures), and its rounding to whole
values is part of what the network saw. The arithmetic is a table of 256 values a channel, computed in float64 and
rounded once to float32, so it is exact and the same on every machine.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.types.data import Preprocess

INTERPOLATION = {
    "bilinear": cv2.INTER_LINEAR,
    "nearest": cv2.INTER_NEAREST,
    "area": cv2.INTER_AREA,
    "cubic": cv2.INTER_CUBIC,
}


@dataclass(frozen=True)
class Box:
    """A half-open rectangle of pixels: rows ``top..bottom-1``, columns ``left..right-1``."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """``(height, width)``."""
        return self.bottom - self.top, self.right - self.left

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """Cut the rectangle out of the last two axes of an array ``[..., H, W]``; a view."""
        return array[..., self.top : self.bottom, self.left : self.right]


@dataclass(frozen=True)
class Geometry:
    """Where a picture's pixels end up in the network input.

    To score: take ``content`` of the logits (scaled to their resolution), resize it to ``covered.size``, and compare
    with ``covered`` of the label. Outside ``covered`` the network saw nothing.

    Attributes:
        source: ``(height, width)`` of the picture.
        network: ``(height, width)`` of the network input.
        content: part of the network input that shows the picture; the rest is padding.
        covered: part of the picture that the network input shows; the rest was cropped off.
    """

    source: tuple[int, int]
    network: tuple[int, int]
    content: Box
    covered: Box


def geometry(source: tuple[int, int], spec: Preprocess) -> Geometry:
    """Work out where a picture of this size ends up.

    ``stretch`` maps all on all. ``letterbox`` scales by the smaller ratio, rounds the size half up (at least one
    pixel), and centres it with the smaller border first. ``crop`` cuts the largest centred rectangle of the network's
    aspect out of the picture and scales that, which is resizing the shorter side and cropping the centre.

    Args:
        source: ``(height, width)`` of the picture.
        spec: preprocessing.
    """
    network = spec.size or source
    whole, full = Box(0, 0, *source), Box(0, 0, *network)
    if spec.size is None or spec.fit == "stretch":
        return Geometry(source, network, full, whole)
    if spec.fit == "letterbox":
        ratio = min(network[0] / source[0], network[1] / source[1])
        return Geometry(source, network, _centred(_scaled(source, ratio, network), network), whole)
    ratio = min(source[0] / network[0], source[1] / network[1])
    return Geometry(source, network, full, _centred(_scaled(network, ratio, source), source))


def preprocess(pixels: NDArray[np.uint8], spec: Preprocess) -> NDArray[Any]:
    """Turn a picture into one network input, without the batch axis.

    Args:
        pixels: uint8 ``[H, W, 3]`` RGB.
        spec: preprocessing.

    Returns:
        contiguous ``[C, H, W]`` (``nchw``) or ``[H, W, C]`` (``nhwc``) of ``spec.dtype``, C being 3, or 1 for gray.
        A uint8 input is rounded to the nearest value and cut off at 0 and 255.
    """
    placed = _in_colour_order(place(pixels, spec), spec.colour)
    tables = _tables(spec.scale, spec.mean, spec.std, spec.dtype, placed.shape[2])
    if spec.layout == "nhwc":
        return _look_up(placed, tables)
    output = np.empty((placed.shape[2], *placed.shape[:2]), spec.dtype)
    for plane, channel, table in zip(output, cv2.split(placed), tables[0].T, strict=True):
        _look_up(channel, table, plane)
    return output


def place(pixels: NDArray[Any], spec: Preprocess) -> NDArray[Any]:
    """Resize, pad or crop a picture to the network's size; values stay uint8 ``[H, W, 3]``."""
    plan = geometry((pixels.shape[0], pixels.shape[1]), spec)
    part = pixels[plan.covered.top : plan.covered.bottom, plan.covered.left : plan.covered.right]
    if part.shape[:2] != plan.content.size:
        height, width = plan.content.size
        part = cv2.resize(part, (width, height), interpolation=INTERPOLATION[spec.resize])
    if plan.content.size == plan.network:
        return part
    placed = np.full((*plan.network, *pixels.shape[2:]), spec.pad, pixels.dtype)
    placed[plan.content.top : plan.content.bottom, plan.content.left : plan.content.right] = part
    return placed


def _scaled(size: tuple[int, int], ratio: float, most: tuple[int, int]) -> tuple[int, int]:
    height, width = (min(limit, max(1, int(side * ratio + 0.5))) for side, limit in zip(size, most, strict=True))
    return height, width


def _centred(inner: tuple[int, int], outer: tuple[int, int]) -> Box:
    top, left = (outer[0] - inner[0]) // 2, (outer[1] - inner[1]) // 2
    return Box(top, left, top + inner[0], left + inner[1])


def _in_colour_order(placed: NDArray[Any], colour: str) -> NDArray[Any]:
    if colour == "gray":
        return np.atleast_3d(cv2.cvtColor(placed, cv2.COLOR_RGB2GRAY))
    return placed if colour == "rgb" else cv2.cvtColor(placed, cv2.COLOR_RGB2BGR)


def _look_up(pixels: NDArray[Any], table: NDArray[Any], output: NDArray[Any] | None = None) -> NDArray[Any]:
    """Look values up, into ``output`` where given; OpenCV's threaded look-up knows all types but float16."""
    if table.dtype != np.float16:
        found = cv2.LUT(pixels, np.ascontiguousarray(table), dst=output)
        return found.reshape(pixels.shape)
    flat = table if table.ndim == 1 else table[0]
    halves: NDArray[Any] = flat[pixels] if flat.ndim == 1 else flat[pixels, np.arange(flat.shape[1])]
    if output is not None:
        output[...] = halves
    return halves


@functools.lru_cache(maxsize=32)
def _tables(scale: float, mean: tuple[float, ...], std: tuple[float, ...], dtype: str, channels: int) -> NDArray[Any]:
    """Network input of each value and channel, ``[1, 256, C]``."""
    values = np.arange(256, dtype=np.float64)[:, None] * scale
    means, deviations = (np.broadcast_to(np.asarray(item, np.float64), channels) for item in (mean, std))
    exact = (values - means) / deviations
    if dtype == "uint8":
        exact = np.clip(np.rint(exact), 0, 255)
    table: NDArray[Any] = exact.astype(dtype)[None]
    return table
