"""From a record of a data set to its label as train ids, whatever the label format."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.labelids import LabelMap, apply_table, make_table, pack_rgb
from calib.edges.labels import cityscapes
from calib.edges.labels.coco import CocoLabels
from calib.edges.labels.panoptic import PanopticLabels
from calib.edges.labels.planes import Plane, read_colour_plane, read_index_plane
from calib.errors import ImageError, ManifestError
from calib.types.data import ClassTable, Dataset, ImageRecord


def read_label(record: ImageRecord, dataset: Dataset) -> LabelMap:
    """Read one label; to read many use :class:`LabelReader`, which prepares its tables once."""
    return LabelReader(dataset).read(record)


class LabelReader:
    """Reads the labels of one data set. Safe to use from several threads.

    Args:
        dataset: with classes.

    Raises:
        ManifestError: the data set names no classes, or its label format lacks what it needs.
    """

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._classes = _require_classes(dataset)
        self._tables = _make_index_tables(dataset, self._classes)
        self._by_format: dict[str, Callable[[ImageRecord, str], LabelMap]] = {
            "rgb": self._read_rgb,
            "cityscapes": self._read_cityscapes,
            "coco": CocoLabels(dataset, self._classes).read,
            "coco-panoptic": PanopticLabels(dataset, self._classes).read,
        }

    def read(self, record: ImageRecord) -> LabelMap:
        """Read the label of a record.

        Returns:
            train ids as stored in the file (labels are never turned by EXIF or resized).

        Raises:
            ImageError: the record has no label, or its file cannot be used.
            ManifestError: a COCO file's categories do not fit the class table.
        """
        if record.label is None:
            raise ImageError(
                record.key,
                expected="a label",
                got="none",
                remedy=f"give split {self._dataset.split!r} of {self._dataset.manifest_path} a labels: entry",
            )
        read = self._by_format.get(self._dataset.label_format, self._read_index)
        return read(record, record.label)

    def _read_index(self, record: ImageRecord, address: str) -> LabelMap:
        del record
        plane = read_index_plane(address)
        return _mapped(plane, self._tables[_value_count(plane.values)])

    def _read_cityscapes(self, record: ImageRecord, address: str) -> LabelMap:
        del record
        plane = read_index_plane(address)
        length = _value_count(plane.values)
        if self._dataset.label_map:
            return _mapped(plane, self._tables[length])
        train_ids, note = cityscapes.holds_train_ids(address, plane.values)
        count = len(self._classes.names)
        table = make_table(length, cityscapes.train_id_mapping(), count) if train_ids else self._tables[length]
        return _mapped(plane, table, *filter(None, [note]))

    def _read_rgb(self, record: ImageRecord, address: str) -> LabelMap:
        del record
        plane = read_colour_plane(address)
        return _mapped(Plane(pack_rgb(plane.values), plane.mode, plane.notes), self._colour_table)

    @functools.cached_property
    def _colour_table(self) -> NDArray[Any]:
        return make_table(1 << 24, colour_mapping(self._dataset, self._classes), len(self._classes.names))


def index_mapping(dataset: Dataset, classes: ClassTable) -> dict[int, int]:
    """Raw label value to train id for label files that hold integers; train ids outside the classes mean void."""
    void = {} if classes.ignore_index is None else {classes.ignore_index: -1}
    if dataset.label_map:
        mapped = {_raw_value(key, dataset): train for key, train in dataset.label_map.items()}
        return void | {raw: -1 if train == classes.ignore_index else train for raw, train in mapped.items()}
    if dataset.label_format == "cityscapes":
        return cityscapes.label_id_mapping()
    if dataset.label_format == "ade20k":
        return {0: -1} | {train + 1: train for train in range(len(classes.names))}
    return {train: train for train in range(len(classes.names))} | void


def colour_mapping(dataset: Dataset, classes: ClassTable) -> dict[int, int]:
    """Packed RGB colour to train id for label files that hold colours."""
    mapping = {(red << 16) + (green << 8) + blue: train for train, (red, green, blue) in enumerate(classes.colours)}
    if not dataset.label_map:
        return mapping
    return {
        _packed_colour(key, dataset): -1 if train == classes.ignore_index else train
        for key, train in dataset.label_map.items()
    }


def _make_index_tables(dataset: Dataset, classes: ClassTable) -> dict[int, NDArray[Any]]:
    """Tables for 8-bit and 16-bit planes, by their length; none where labels are not planes of integers."""
    if dataset.label_format in ("rgb", "coco", "coco-panoptic"):
        return {}
    mapping = index_mapping(dataset, classes)
    return {length: make_table(length, mapping, len(classes.names)) for length in (256, 65536)}


def _mapped(plane: Plane, table: NDArray[Any], *notes: str) -> LabelMap:
    ids, foreign = apply_table(plane.values, table)
    return LabelMap(ids, foreign, (*plane.notes, *notes), plane.mode)


def _value_count(plane: NDArray[Any]) -> int:
    return 256 if plane.dtype == np.uint8 else 65536


def _raw_value(key: str, dataset: Dataset) -> int:
    try:
        return int(key)
    except ValueError as error:
        raise ManifestError(
            f"{dataset.manifest_path}, label_map",
            expected=f"whole numbers as keys under label_format: {dataset.label_format}",
            got=repr(key),
            remedy="write RAW_VALUE: TRAIN_ID; colours as keys need label_format: rgb",
        ) from error


def _packed_colour(key: str, dataset: Dataset) -> int:
    parts = [part.strip() for part in key.split(",")]
    if len(parts) != 3 or not all(part.isdigit() and int(part) < 256 for part in parts):
        raise ManifestError(
            f"{dataset.manifest_path}, label_map",
            expected='"R,G,B" with numbers of 0 to 255 as keys under label_format: rgb',
            got=repr(key),
            remedy='write for example "128,64,128": 0',
        )
    red, green, blue = (int(part) for part in parts)
    return (red << 16) + (green << 8) + blue


def _require_classes(dataset: Dataset) -> ClassTable:
    if dataset.classes is None or not dataset.classes.names:
        raise ManifestError(
            dataset.manifest_path,
            expected="classes, to read labels by",
            got="none",
            remedy="add classes: [NAME, …] in train-id order",
        )
    return dataset.classes
