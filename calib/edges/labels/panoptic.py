"""COCO panoptic labels: a PNG of segment ids (``R + 256 G + 65536 B``) and a JSON file with their categories.

The JSON file of folder ``panoptic_val2017/`` is ``panoptic_val2017.json`` beside it, as panopticapi lays them out.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.core.labelids import LabelMap, id_dtype, pack_panoptic, void_code
from calib.edges.files import read_bytes
from calib.edges.labels.categories import Category, category_mapping
from calib.edges.labels.jsonfile import load_json
from calib.edges.labels.planes import Plane, read_colour_plane, read_index_plane, refuse_lossy
from calib.errors import ImageError
from calib.types.data import ClassTable, Dataset, ImageRecord

VOID_SEGMENT = 0


class Segment(msgspec.Struct, gc=False):
    """An entry of ``segments_info``."""

    id: int
    category_id: int


class PanopticAnnotation(msgspec.Struct, gc=False):
    """An entry of ``annotations``."""

    file_name: str
    segments_info: list[Segment]


class PanopticFile(msgspec.Struct):
    """A panoptic file."""

    annotations: list[PanopticAnnotation]
    categories: list[Category]


class LoadedPanoptic:
    """One panoptic file, indexed by the name of the PNG."""

    def __init__(self, address: str, dataset: Dataset, classes: ClassTable) -> None:
        content = load_json(address, PanopticFile, "a COCO panoptic file")
        self.trains = category_mapping(address, content.categories, dataset, classes)
        self.segments = {item.file_name.rpartition("/")[2]: item.segments_info for item in content.annotations}


class PanopticLabels:
    """Reads panoptic labels as semantic ones."""

    def __init__(self, dataset: Dataset, classes: ClassTable) -> None:
        self._dataset, self._classes = dataset, classes
        self._files: dict[str, LoadedPanoptic] = {}
        self._lock = threading.Lock()

    def read(self, record: ImageRecord, address: str) -> LabelMap:
        """Read the label PNG at ``address``.

        Segments that the JSON does not name are foreign (by segment id), as are categories outside the classes (by
        category id); segments without pixels are noted.

        Raises:
            ImageError: no entry for the PNG, or the PNG cannot be used.
        """
        del record
        folder, _, name = address.replace("\\", "/").rpartition("/")
        with self._lock:
            if folder not in self._files:
                self._files[folder] = LoadedPanoptic(f"{folder}.json", self._dataset, self._classes)
            loaded = self._files[folder]
        if name not in loaded.segments:
            raise ImageError(
                address,
                expected=f"an annotation with this file_name in {folder}.json",
                got="none",
                remedy="check that labels and JSON file belong to the same split",
            )
        segments = {segment.id: segment.category_id for segment in loaded.segments[name]}
        return paint_segments(_segment_plane(address), segments, loaded.trains, len(self._classes.names))


def _segment_plane(address: str) -> Plane:
    """Segment ids, uint32 ``[H, W]``; a gray PNG is taken to hold the ids themselves."""
    data = read_bytes(address)
    if refuse_lossy(address, data).mode.startswith("gray"):
        plane = read_index_plane(address, data)
        note = "segment ids stored as gray values, not as colours"
        return Plane(plane.values.astype(np.uint32), plane.mode, (*plane.notes, note))
    plane = read_colour_plane(address, data)
    return Plane(pack_panoptic(plane.values), plane.mode, plane.notes)


def paint_segments(plane: Plane, segments: Mapping[int, int], trains: Mapping[int, int], class_count: int) -> LabelMap:
    """Turn segment ids into train ids.

    Args:
        plane: uint32 ``[H, W]`` segment ids; 0 is void.
        segments: segment id to category id.
        trains: category id to train id, -1 for void.
        class_count: number of classes.
    """
    void, values = void_code(class_count), plane.values
    known = np.array(sorted({VOID_SEGMENT, *segments}), np.uint32)
    position = np.minimum(np.searchsorted(known, values), len(known) - 1)
    unknown = known[position] != values
    pixels = np.bincount(position[~unknown], minlength=len(known))
    codes = np.full(len(known), void, id_dtype(class_count))
    foreign = _count_values(values[unknown])
    missing = []
    for row, segment in enumerate(known.tolist()):
        category = segments.get(segment)
        if category is None:
            continue
        missing += [segment] if pixels[row] == 0 else []
        train = trains.get(category)
        if train is None:
            foreign[category] = foreign.get(category, 0) + int(pixels[row])
        elif 0 <= train < class_count:
            codes[row] = train
    ids = codes[position]
    ids[unknown] = void
    return LabelMap(ids, dict(sorted(foreign.items())), (*plane.notes, *_segment_notes(values, missing)), plane.mode)


def _segment_notes(values: NDArray[Any], missing: list[int]) -> list[str]:
    notes = [f"{len(missing)} segments of the JSON file have no pixel: {missing[:5]}"] if missing else []
    return notes if values.any() else [*notes, "every pixel is void (segment id 0)"]


def _count_values(values: NDArray[Any]) -> dict[int, int]:
    found, counts = np.unique(values, return_counts=True)
    return {int(value): int(count) for value, count in zip(found, counts, strict=True)}
