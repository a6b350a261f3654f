"""Scores of images: raw counts image by image, then columns of a score table, vectorised over the images.

Property, score and verdict are kept apart: :class:`Counts` holds counts, :func:`make_columns` makes scores of them,
:func:`is_dark` and its like judge a score by a threshold. ``docs/scores.md`` lists every column.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core import score_kernels as kernels
from calib.core.phash import make_thumbnails, perceptual_hashes
from calib.types.data import Preprocess
from calib.types.scores import ScoreTable

VERSION = 1
"""Raised whenever a score's definition changes, so that older indexes are scanned again."""

HISTOGRAM_BINS = 16
DARK_IMAGE = 1 / 3
"""An image is dark when at least this share of its pixels is."""
BRIGHT_IMAGE = 1 / 3
"""An image is overexposed when at least this share of its pixels is bright."""
FLAT_IMAGE = 1 - 16 / 255
"""An image is flat when all but a few of its pixels lie within 16 grey levels."""


@dataclass(frozen=True)
class ScoreSettings:
    """Thresholds that enter the columns.

    Attributes:
        dark_luma: luma below this is dark; 32 of 255 lies 3.7 stops below middle grey (118) in sRGB.
        bright_luma: luma of at least this is overexposed.
        edge_gradient: an edge pixel's gradient, in grey levels a pixel of the reduced picture.
        small_area: objects under this many pixels of network input are small; 32 x 32 is COCO's bound, and one cell
            of the coarsest feature map (stride 32) of the usual encoders.
        speck_area: connected components under this many pixels of network input are label noise, no objects.
        working_pixels: pictures are reduced until at most this many pixels are left.
    """

    dark_luma: int = 32
    bright_luma: int = 250
    edge_gradient: float = 12.0
    small_area: float = 1024.0
    speck_area: float = 4.0
    working_pixels: int = 1 << 17

    def as_thresholds(self, preprocess: Preprocess | None) -> dict[str, float]:
        """Name every threshold, with the network's input size (0 where each image keeps its own)."""
        height, width = network_size(preprocess) or (0, 0)
        named = {name: float(getattr(self, name)) for name in self.__dataclass_fields__}
        return named | {"network_height": float(height), "network_width": float(width), "version": float(VERSION)}


def network_size(preprocess: Preprocess | None) -> tuple[int, int] | None:
    """``(height, width)`` of the network's input, or None when images keep their size."""
    return None if preprocess is None else preprocess.size


def area_factor(size: tuple[int, int], preprocess: Preprocess | None) -> float:
    """Area in network input of one pixel of an image.

    Args:
        size: ``(height, width)`` of the image.
        preprocess: how the image becomes network input; None when it keeps its size.
    """
    target = network_size(preprocess)
    if preprocess is None or target is None:
        return 1.0
    vertical, horizontal = target[0] / size[0], target[1] / size[1]
    if preprocess.fit == "stretch":
        return vertical * horizontal
    scale = min(vertical, horizontal) if preprocess.fit == "letterbox" else max(vertical, horizontal)
    return scale * scale


def reduction(size: tuple[int, int], working_pixels: int) -> int:
    """log2 of the factor that a picture is reduced by: the smallest that leaves at most ``working_pixels``."""
    pixels = size[0] * size[1]
    shift = 0
    while pixels > working_pixels << (2 * shift) and min(size) >> (shift + 1):
        shift += 1
    return shift


@dataclass(frozen=True)
class ReducedLuma:
    """Luma that scores are taken from.

    Attributes:
        pixels: uint8 ``[H >> shift, W >> shift]``.
        size: ``(H, W)`` of the whole picture.
        shift: log2 of the side of the blocks that were averaged.
    """

    pixels: NDArray[np.uint8]
    size: tuple[int, int]
    shift: int


def reduce_luma(luma: NDArray[np.uint8], working_pixels: int) -> ReducedLuma:
    """Reduce uint8 ``[H, W]`` luma until at most ``working_pixels`` are left."""
    size = (luma.shape[0], luma.shape[1])
    shift = reduction(size, working_pixels)
    return ReducedLuma(average_blocks(luma, shift), size, shift)


def average_blocks(luma: NDArray[np.uint8], shift: int) -> NDArray[np.uint8]:
    """Average blocks of ``2**shift`` pixels a side; rows and columns that fill no block are left out.

    Args:
        luma: uint8 ``[H, W]``.
        shift: log2 of the side.

    Returns:
        uint8 ``[H >> shift, W >> shift]``, contiguous, rounded.
    """
    import cv2

    height, width = luma.shape[0] >> shift, luma.shape[1] >> shift
    whole = np.ascontiguousarray(luma[: height << shift, : width << shift])
    return np.asarray(cv2.resize(whole, (width, height), interpolation=cv2.INTER_AREA)) if shift else whole


class Counts:
    """Raw counts of ``N`` images, one row an image; rows may be filled by different threads.

    Args:
        images: number of rows.
        classes: number of classes, 0 without labels.

    Attributes:
        levels: int64 ``[N, 256]`` pixels of the reduced luma by grey level.
        edges: int64 ``[N, 4]`` edge pixels; sum and sum of squares of the Laplacian; pixels these were taken over.
        blocks: float64 ``[N, 32, 32]`` mean luma of equal areas.
        size: int64 ``[N, 2]`` height and width.
        labelled: bool ``[N]``.
        classes: int64 ``[N, 5, K]`` pixels, small objects, pixels in them; pixels of reduced luma, dark ones of those.
        areas: int64 ``[N, AREA_BINS]`` objects by log2 of their area in network input.
        borders: int64 ``[N, 2]`` pairs of labelled neighbours; those of different classes.
        foreign: int64 ``[N]`` label pixels with values outside the class table.
    """

    def __init__(self, images: int, classes: int) -> None:
        self.levels = np.zeros((images, 256), np.int64)
        self.edges = np.zeros((images, 4), np.int64)
        self.blocks = np.zeros((images, kernels.BLOCKS, kernels.BLOCKS))
        self.size = np.zeros((images, 2), np.int64)
        self.labelled = np.zeros(images, bool)
        self.classes = np.zeros((images, 5, classes), np.int64)
        self.areas = np.zeros((images, kernels.AREA_BINS), np.int64)
        self.borders = np.zeros((images, 2), np.int64)
        self.foreign = np.zeros(images, np.int64)

    def take(self, rows: NDArray[np.int64]) -> Counts:
        """Make counts of the given rows."""
        taken = Counts(0, self.classes.shape[2])
        for name, values in vars(self).items():
            setattr(taken, name, values[rows])
        return taken

    def add_image(
        self,
        row: int,
        luma: ReducedLuma,
        ids: NDArray[Any] | None,
        settings: ScoreSettings,
        preprocess: Preprocess | None,
    ) -> None:
        """Count one image.

        Args:
            row: where its counts go.
            luma: BT.601 at the working size (see :func:`calib.edges.luma.read_luma`).
            ids: unsigned ``[H, W]`` train ids, those outside the class table void; None without label.
            settings: thresholds.
            preprocess: of the network, for areas in its input.
        """
        pixels = luma.pixels
        self.size[row] = luma.size
        steep = math.ceil((2 * settings.edge_gradient) ** 2)
        self.edges[row, 3] = max(pixels.shape[0] - 2, 0) * max(pixels.shape[1] - 2, 0)
        kernels.measure_picture(pixels, steep, self.levels[row], self.edges[row], self.blocks[row])
        if ids is None:
            return
        self.labelled[row] = True
        kernels.measure_label(
            ids,
            area_factor(luma.size, preprocess),
            settings.speck_area,
            settings.small_area,
            self.classes[row, :3],
            self.areas[row],
            self.borders[row],
        )
        kernels.count_dark(ids, pixels, luma.shift, settings.dark_luma, self.classes[row, 3:])


def make_columns(counts: Counts, settings: ScoreSettings) -> dict[str, NDArray[Any]]:
    """Turn counts into the score columns of ``docs/scores.md``, float32 unless they count or identify.

    Label columns of images without a label are NaN (or 0 where they count).
    """
    columns = _luma_columns(counts, settings) | _edge_columns(counts)
    columns |= {
        "height": counts.size[:, 0].astype(np.int32),
        "width": counts.size[:, 1].astype(np.int32),
        "phash": perceptual_hashes(counts.blocks),
        "thumbnail": make_thumbnails(counts.blocks),
        "labelled": counts.labelled.copy(),
    }
    return columns | _label_columns(counts)


def _luma_columns(counts: Counts, settings: ScoreSettings) -> dict[str, NDArray[Any]]:
    levels = np.arange(256)
    total = np.maximum(counts.levels.sum(axis=1), 1)
    mean = counts.levels @ levels / total
    deviation = np.sqrt(np.maximum(counts.levels @ levels**2 / total - mean**2, 0))
    running = counts.levels.cumsum(axis=1)

    def percentile(share: float) -> NDArray[np.float32]:
        return np.asarray(np.argmax(running >= share * total[:, None], axis=1), np.float32)

    bins = counts.levels.reshape(len(total), HISTOGRAM_BINS, -1).sum(axis=2)
    return {
        "luma_mean": mean.astype(np.float32),
        "luma_p05": percentile(0.05),
        "luma_p50": percentile(0.5),
        "luma_p95": percentile(0.95),
        "luma_histogram": (bins / total[:, None]).astype(np.float32),
        "dark_share": (counts.levels[:, : settings.dark_luma].sum(axis=1) / total).astype(np.float32),
        "bright_share": (counts.levels[:, settings.bright_luma :].sum(axis=1) / total).astype(np.float32),
        "contrast": (deviation / 127.5).astype(np.float32),
        "flatness": (1 - (percentile(0.999) - percentile(0.001)) / 255).astype(np.float32),
    }


def _edge_columns(counts: Counts) -> dict[str, NDArray[Any]]:
    inner = np.maximum(counts.edges[:, 3], 1)
    mean = counts.edges[:, 1] / inner
    return {
        "edge_density": (counts.edges[:, 0] / inner).astype(np.float32),
        "sharpness": np.maximum(counts.edges[:, 2] / inner - mean**2, 0).astype(np.float32),
    }


def _label_columns(counts: Counts) -> dict[str, NDArray[Any]]:
    by_class = counts.classes
    labelled = by_class[:, 0].sum(axis=1)
    return {
        "label_share": _share(labelled, counts.size.prod(axis=1), counts.labelled),
        "foreign_share": _share(counts.foreign, counts.size.prod(axis=1), counts.labelled),
        "boundary_density": _share(counts.borders[:, 1], counts.borders[:, 0], counts.labelled),
        "small_count": by_class[:, 1].sum(axis=1).astype(np.int32),
        "small_share": _share(by_class[:, 2].sum(axis=1), labelled, counts.labelled),
        "object_areas": counts.areas.astype(np.int32),
        "class_share": _share(by_class[:, 0], labelled[:, None], counts.labelled[:, None]),
        "class_dark_share": _share(by_class[:, 4], by_class[:, 3], by_class[:, 3] > 0),
        "class_small_count": by_class[:, 1].astype(np.int32),
        "class_small_share": _share(by_class[:, 2], labelled[:, None], counts.labelled[:, None]),
    }


def _share(part: NDArray[Any], whole: NDArray[Any], known: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Divide; 0 of 0 is 0, and NaN where nothing is known."""
    quotient = part / np.maximum(whole, 1)
    return np.asarray(np.where(known, quotient, np.nan), np.float32)


def is_dark(table: ScoreTable, share: float = DARK_IMAGE) -> NDArray[np.bool_]:
    """Judge which images are dark, bool ``[N]``: at least ``share`` of the pixels below ``dark_luma``."""
    return np.asarray(table.columns["dark_share"] >= share)


def is_bright(table: ScoreTable, share: float = BRIGHT_IMAGE) -> NDArray[np.bool_]:
    """Judge which images are overexposed, bool ``[N]``: at least ``share`` of the pixels from ``bright_luma`` up."""
    return np.asarray(table.columns["bright_share"] >= share)


def is_flat(table: ScoreTable, flatness: float = FLAT_IMAGE) -> NDArray[np.bool_]:
    """Judge which images are flat (black, white, one colour), bool ``[N]``."""
    return np.asarray(table.columns["flatness"] >= flatness - 1e-6)
