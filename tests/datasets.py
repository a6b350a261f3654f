"""Small data sets on disk and as values."""

from __future__ import annotations

import json

from calib.types.data import ClassTable, Dataset, ImageRecord

CITYSCAPES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "light", "sign", "vegetation", "terrain",
    "sky", "person", "rider", "car", "truck", "bus", "train", "motorcycle", "bicycle",
)  # fmt: skip


def dataset(names=("a", "b", "c"), label_format="index", ignore_index=255, label_map=None, colours=(), records=()):
    """A data set as a manifest would give it."""
    return Dataset(
        name="set",
        split="val",
        records=tuple(records),
        classes=ClassTable(tuple(names), ignore_index, tuple(colours)),
        label_format=label_format,
        label_map=label_map or {},
        preprocess=None,
        inputs={},
        manifest_path="set.yaml",
        manifest_sha256="",
    )


def record(label, key="images/1.jpg"):
    """A record with this label."""
    return ImageRecord(key, f"/data/{key}", str(label))


def write_coco(path, annotations, categories=((1, "a"), (2, "b")), size=(6, 8)):
    """An instances file for one picture ``1.jpg``."""
    content = {
        "images": [{"id": 7, "file_name": "1.jpg", "height": size[0], "width": size[1], "license": 1}],
        "annotations": [
            {"id": number, "image_id": 7, "iscrowd": 0, "bbox": [0, 0, 1, 1]} | item
            for number, item in enumerate(annotations, 1)
        ],
        "categories": [{"id": number, "name": name, "supercategory": ""} for number, name in categories],
    }
    path.write_text(json.dumps(content))
    return path
