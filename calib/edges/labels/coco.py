"""COCO instance files as semantic labels: polygons and run-length masks of either encoding.

Annotations are painted from the largest to the smallest, so that small objects stay visible; equal areas in the order
of their ids. Pixels under no annotation are void, unless ``label_map`` maps ``background`` to a train id.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from calib.core.labelids import LabelMap, id_dtype, void_code
from calib.core.rle import decode_counts, fill_polygon, runs_to_mask
from calib.edges.labels.categories import Category, CocoImage, ImageIndex, category_mapping
from calib.edges.labels.jsonfile import load_json
from calib.errors import ImageError
from calib.types.data import ClassTable, Dataset, ImageRecord


class Annotation(msgspec.Struct, gc=False):
    """An entry of ``annotations``; its segmentation is decoded when its image is read."""

    id: int
    image_id: int
    category_id: int
    segmentation: msgspec.Raw = msgspec.Raw(b"null")


class CocoFile(msgspec.Struct):
    """An instances file."""

    images: list[CocoImage]
    annotations: list[Annotation]
    categories: list[Category]


class Runs(msgspec.Struct):
    """A run-length mask: counts as compressed text or as a list."""

    counts: str | list[int]
    size: tuple[int, int]


Segmentation = Runs | list[Any] | None
FAR = 1e7
"""Coordinates are cut off here, far outside any picture, to keep arithmetic on them finite."""


class LoadedCoco:
    """One instances file, indexed."""

    def __init__(self, address: str, dataset: Dataset, classes: ClassTable) -> None:
        content = load_json(address, CocoFile, "a COCO instances file")
        self.images = ImageIndex(address, content.images)
        self.trains = category_mapping(address, content.categories, dataset, classes)
        self.annotations: dict[int, list[Annotation]] = defaultdict(list)
        for annotation in content.annotations:
            self.annotations[annotation.image_id].append(annotation)


class CocoLabels:
    """Reads labels from the instances files of a data set, each loaded once."""

    def __init__(self, dataset: Dataset, classes: ClassTable) -> None:
        self._dataset, self._classes = dataset, classes
        self._files: dict[str, LoadedCoco] = {}
        self._lock = threading.Lock()

    def read(self, record: ImageRecord, address: str) -> LabelMap:
        """Paint the label of one picture.

        Raises:
            ImageError: no entry for the picture, or a malformed segmentation.
        """
        with self._lock:
            if address not in self._files:
                self._files[address] = LoadedCoco(address, self._dataset, self._classes)
            loaded = self._files[address]
        image = loaded.images.find(record)
        return self._paint(address, image, loaded)

    def _paint(self, address: str, image: CocoImage, loaded: LoadedCoco) -> LabelMap:
        count = len(self._classes.names)
        void = void_code(count)
        background = self._dataset.label_map.get("background", -1)
        size = (image.height, image.width)
        ids = np.full(size, background if 0 <= background < count else void, id_dtype(count))
        masks = []
        for annotation in loaded.annotations.get(image.id, []):
            place = f"{address}, annotation {annotation.id} of {image.file_name}"
            mask = segmentation_mask(place, annotation.segmentation, size)
            masks.append((-int(mask.sum()), annotation.id, annotation.category_id, mask))
        foreign: dict[int, int] = defaultdict(int)
        for negative_area, _, category, mask in sorted(masks, key=lambda item: item[:2]):
            train = loaded.trains.get(category)
            if train is None:
                foreign[category] -= negative_area
            ids[mask] = train if train is not None and 0 <= train < count else void
        empty = sum(1 for item in masks if item[0] == 0)
        notes = (f"{empty} annotations cover no pixel",) if empty else ()
        return LabelMap(ids, dict(sorted(foreign.items())), notes)


def segmentation_mask(place: str, raw: msgspec.Raw, size: tuple[int, int]) -> NDArray[np.bool_]:
    """Decode a segmentation of any of COCO's encodings.

    Args:
        place: names the annotation in errors.
        raw: its JSON: polygons, ``{"counts": text or list, "size": [h, w]}``, or null.
        size: ``(height, width)`` of the image entry.

    Raises:
        ImageError: malformed, or its own size differs from the image's.
    """
    try:
        decoded: Segmentation = msgspec.json.decode(raw, type=Segmentation)
    except msgspec.DecodeError as error:
        raise _malformed(place, "polygons or run-length counts with size", str(error)) from error
    if isinstance(decoded, Runs):
        return _runs_mask(place, decoded, size)
    mask = np.zeros(size, np.bool_)
    for ring in _rings(decoded or []):
        mask |= fill_polygon(_polygon_points(place, ring, size), size)
    return mask


def _rings(decoded: list[Any]) -> list[Any]:
    """Polygons of a segmentation; a flat list of numbers is one polygon."""
    return decoded if any(isinstance(item, list) for item in decoded) or not decoded else [decoded]


def _polygon_points(place: str, ring: Any, size: tuple[int, int]) -> NDArray[np.float64]:
    numbers = isinstance(ring, list) and all(
        isinstance(value, (int, float)) and not isinstance(value, bool) for value in ring
    )
    if not numbers:
        raise _malformed(place, "polygons as lists of numbers", repr(ring)[:80])
    if _looks_like_runs(ring, size):
        raise ImageError(
            place,
            expected="polygon coordinates x, y, x, y, …",
            got=f"{len(ring)} numbers that look like run lengths: whole numbers that add up to height x width",
            remedy='write them as {"counts": [...], "size": [height, width]} in place of the polygon',
        )
    if len(ring) % 2 or len(ring) < 6:
        raise _malformed(place, "an even number of coordinates, at least three points", f"{len(ring)} numbers")
    return np.clip(np.asarray(ring, np.float64), -FAR, FAR).reshape(-1, 2)


def _looks_like_runs(ring: list[Any], size: tuple[int, int]) -> bool:
    """Whether numbers in a polygon field are run lengths (odd in number, or larger than any coordinate)."""
    whole = all(float(value).is_integer() and value >= 0 for value in ring)
    return bool(ring) and whole and sum(ring) == size[0] * size[1] and (len(ring) % 2 == 1 or max(ring) > max(size))


def _runs_mask(place: str, runs: Runs, size: tuple[int, int]) -> NDArray[np.bool_]:
    if tuple(runs.size) != size:
        raise ImageError(
            place,
            expected=f"run lengths of size {list(size)}, as the image entry says",
            got=f"size {list(runs.size)}",
            remedy="export the annotations again at the picture's size ([height, width], in this order)",
        )
    try:
        counts = decode_counts(runs.counts) if isinstance(runs.counts, str) else runs.counts
        return runs_to_mask(counts, size)
    except (ValueError, OverflowError) as error:
        raise _malformed(place, "run lengths that fill the picture", str(error)) from error


def _malformed(place: str, expected: str, got: str) -> ImageError:
    return ImageError(place, expected=expected, got=got, remedy="correct or remove this annotation")
