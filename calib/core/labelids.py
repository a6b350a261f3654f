"""Raw label values to train ids, through one table look-up.

Inside a table two codes are reserved at the top of the dtype: the largest is void (ignored or unlabelled), the one
below it marks values outside the table. So up to 254 classes fit uint8; more take uint16.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

SMALL_TABLE = 254


@dataclass(frozen=True)
class LabelMap:
    """The label of a picture as train ids.

    Attributes:
        ids: uint8 or uint16 ``[H, W]`` train ids; void pixels hold the largest value of the dtype.
        foreign: raw value outside the class table -> its number of pixels; these pixels are void in ``ids``.
            Raw values are label values, category ids (COCO), or ``R * 65536 + G * 256 + B`` (RGB labels).
        notes: oddities that do not make the label unusable.
        mode: how the label file stores it (``gray``, ``palette``, ``gray16``, ``rgb``, …); empty for COCO JSON.
    """

    ids: NDArray[Any]
    foreign: Mapping[int, int]
    notes: tuple[str, ...] = ()
    mode: str = ""

    @property
    def void(self) -> int:
        """The value of void pixels in ``ids``: 255 or 65535."""
        return int(np.iinfo(self.ids.dtype).max)


def id_dtype(class_count: int) -> type[np.uint8] | type[np.uint16]:
    """Smallest dtype for this many classes with the two reserved codes."""
    return np.uint8 if class_count <= SMALL_TABLE else np.uint16


def void_code(class_count: int) -> int:
    """Code of ignored and unlabelled pixels."""
    return int(np.iinfo(id_dtype(class_count)).max)


def make_table(length: int, mapping: Mapping[int, int], class_count: int) -> NDArray[Any]:
    """Build a look-up table from raw values to train ids.

    Args:
        length: number of raw values, 256, 65536 or 2**24; the table is that long.
        mapping: raw value to train id; ids outside ``0..class_count-1`` mean void. Negative raw values count from
            the end, as they do when a signed label is stored unsigned (-1 becomes 255).
        class_count: number of classes.
    """
    void = void_code(class_count)
    table = np.full(length, void - 1, id_dtype(class_count))
    for raw, train in mapping.items():
        if -length <= raw < length:
            table[raw] = train if 0 <= train < class_count else void
    return table


def apply_table(raw: NDArray[Any], table: NDArray[Any]) -> tuple[NDArray[Any], dict[int, int]]:
    """Look every raw value up.

    Args:
        raw: unsigned ``[H, W]``, values below ``len(table)``.
        table: from :func:`make_table`.

    Returns:
        train ids (foreign pixels void), and foreign raw value -> pixels, ascending.
    """
    fast = raw.dtype == np.uint8 and table.dtype == np.uint8 and len(table) == 256
    ids: NDArray[Any] = cv2.LUT(raw, table) if fast else table[raw]
    void = np.iinfo(table.dtype).max
    outside = ids == void - 1
    if not outside.any():
        return ids, {}
    ids[outside] = void
    values, counts = np.unique(raw[outside], return_counts=True)
    return ids, {int(value): int(count) for value, count in zip(values, counts, strict=True)}


def pack_rgb(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Pack uint8 ``[H, W, 3]`` RGB into ``R * 65536 + G * 256 + B``, uint32 ``[H, W]``."""
    wide = np.empty((*pixels.shape[:2], 4), np.uint8)
    wide[..., 3] = 0
    wide[..., :3] = pixels[..., ::-1]
    return wide.view("<u4")[..., 0].astype(np.uint32, copy=False)


def pack_panoptic(pixels: NDArray[np.uint8]) -> NDArray[np.uint32]:
    """Pack uint8 ``[H, W, 3]`` RGB into segment ids ``R + 256 * G + 65536 * B`` (COCO panoptic format), uint32."""
    return pack_rgb(np.ascontiguousarray(pixels[..., ::-1]))
