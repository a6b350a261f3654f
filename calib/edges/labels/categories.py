"""Categories of COCO files to train ids."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from calib.errors import ImageError, ManifestError
from calib.types.data import ClassTable, Dataset, ImageRecord


class Category(msgspec.Struct, gc=False):
    """An entry of ``categories``."""

    id: int
    name: str = ""


class CocoImage(msgspec.Struct, gc=False):
    """An entry of ``images``."""

    id: int
    file_name: str
    height: int
    width: int


def category_mapping(
    address: str, categories: Sequence[Category], dataset: Dataset, classes: ClassTable
) -> dict[int, int]:
    """Category id to train id; -1 is void; a category that is left out is outside the class table.

    A category is found by its id or its name in ``label_map``, else by its name among the classes.

    Raises:
        ManifestError: not one category fits.
    """
    by_name = {name: train for train, name in enumerate(classes.names)}
    table: dict[int, int] = {}
    for category in categories:
        keys = (str(category.id), category.name)
        train = next((dataset.label_map[key] for key in keys if key in dataset.label_map), by_name.get(category.name))
        if train is not None:
            table[category.id] = -1 if train == classes.ignore_index else train
    if not table and categories:
        raise ManifestError(
            f"{dataset.manifest_path}, classes",
            expected=f"the category names of {address}, such as {', '.join(item.name for item in categories[:4])}",
            got=", ".join(classes.names[:4]),
            remedy="name the classes as the categories, or map category ids to train ids with label_map",
        )
    return table


class ImageIndex:
    """Finds the entry of a picture in a COCO file by its path.

    Args:
        address: the COCO file, for errors.
        images: its ``images``.
    """

    def __init__(self, address: str, images: Sequence[CocoImage]) -> None:
        self._address = address
        self._by_name: dict[str, list[CocoImage]] = {}
        for image in images:
            self._by_name.setdefault(_base_name(image.file_name), []).append(image)

    def find(self, record: ImageRecord) -> CocoImage:
        """Find the entry whose ``file_name`` is the longest end of the record's path.

        Raises:
            ImageError: no entry, or several that fit equally.
        """
        path = record.path.replace("\\", "/")
        named = self._by_name.get(_base_name(path), [])
        fitting = [image for image in named if path.endswith("/" + image.file_name) or path == image.file_name]
        chosen = sorted(fitting or named, key=lambda image: -len(image.file_name))
        if not chosen or (len(chosen) > 1 and len(chosen[0].file_name) == len(chosen[1].file_name)):
            raise ImageError(
                record.key,
                expected=f"one entry with this file_name in {self._address}",
                got=f"{len(chosen)} entries",
                remedy="check that images and annotations belong to the same split",
            )
        return chosen[0]


def _base_name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]
