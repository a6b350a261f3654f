"""A COCO JSON file as a data set of its own: images and categories come from the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from calib.edges.files import read_bytes
from calib.edges.labels.categories import Category, CocoImage
from calib.edges.manifest.addresses import join_address, key_of, refuse_remote
from calib.edges.manifest.classes import default_colour
from calib.edges.manifest.splits import sort_records
from calib.errors import ManifestError
from calib.types.data import ClassTable, Dataset, ImageRecord


class CocoOverview(msgspec.Struct):
    """What a data set needs of a COCO file; annotations are left undecoded."""

    images: list[CocoImage]
    categories: list[Category]
    annotations: list[msgspec.Raw] = []


def load_coco(path: str, root: str | None, sha256: str) -> Dataset:
    """Make a data set of an instances or panoptic file.

    Args:
        path: the JSON file.
        root: folder of the images; the file's own folder by default.
        sha256: hex digest of the file.

    Raises:
        ManifestError: it is not of this format.
    """
    content = _decode(path)
    base = Path(root or Path(path).parent).as_posix()
    panoptic = bool(content.annotations) and b'"segments_info"' in bytes(content.annotations[0])
    categories = sorted(content.categories, key=lambda category: category.id)
    records = []
    for image in content.images:
        address = join_address(base, refuse_remote(path, image.file_name))
        label = f"{path.removesuffix('.json')}/{Path(image.file_name).stem}.png" if panoptic else path
        records.append(ImageRecord(key_of(base, image.file_name), address, label))
    return Dataset(
        name=Path(path).stem,
        split=Path(path).stem,
        records=sort_records(records, path),
        classes=ClassTable(
            tuple(category.name for category in categories),
            None,
            tuple(default_colour(index + 1) for index in range(len(categories))),
        ),
        label_format="coco-panoptic" if panoptic else "coco",
        label_map={str(category.id): train for train, category in enumerate(categories)},
        preprocess=None,
        inputs={},
        manifest_path=path,
        manifest_sha256=sha256,
    )


def _decode(path: str) -> Any:
    try:
        return msgspec.json.decode(read_bytes(path), type=CocoOverview)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ManifestError(
            path,
            expected="a COCO file with images, annotations and categories",
            got=str(error),
            remedy="name a COCO instances or panoptic file, or write a manifest (docs/manifests.md)",
        ) from error
