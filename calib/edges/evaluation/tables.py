"""The results as files: ``evaluation.json`` and CSV tables."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.edges.files import write_atomic

Json = Mapping[str, Any]
DOCUMENT = "evaluation.json"
CLASSES, SLICES, IMAGES = "evaluation_classes.csv", "evaluation_slices.csv", "evaluation_images.csv"


def write_document(folder: Path, document: Json) -> None:
    """Write ``evaluation.json``: NaN cannot occur in it, so every JSON reader takes it.

    Raises:
        OutputError: it cannot be written.
    """
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    write_atomic(folder / DOCUMENT, (text + "\n").encode("utf-8", "backslashreplace"))


def write_tables(folder: Path, document: Json, images: Sequence[Json]) -> None:
    """Write the CSV tables: one line a class and network, one a slice and network, one an image and network.

    Raises:
        OutputError: one cannot be written.
    """
    models = document["models"]
    write_atomic(folder / CLASSES, _csv(class_lines(models)))
    write_atomic(folder / SLICES, _csv(slice_lines(models)))
    write_atomic(folder / IMAGES, _csv(image_lines(images, list(document["slices"]))))


def class_lines(models: Sequence[Json]) -> Iterable[dict[str, Any]]:
    """IoU, boundary IoU and difference of every class under every network; the mean as class ``*``."""
    for model in models:
        against = model["vs_reference"]
        yield {
            "model": model["name"],
            "class": "*",
            "iou": model["miou"],
            "boundary_iou": model["boundary"]["miou"],
            "small_object_recall": model["objects"]["small"]["recall"],
            **_difference(against and against["miou"]),
        }
        for name, iou in model["per_class"].items():
            yield {
                "model": model["name"],
                "class": name,
                "iou": iou,
                "boundary_iou": model["boundary"]["per_class"][name],
                "small_object_recall": model["objects"]["small_per_class"][name]["recall"],
                **_difference(against and against["per_class"][name]),
            }


def slice_lines(models: Sequence[Json]) -> Iterable[dict[str, Any]]:
    """Mean IoU and difference of every slice, and the IoU of its classes."""
    for model in models:
        against = model["vs_reference"]
        for name, part in model["slices"].items():
            yield {
                "model": model["name"],
                "slice": name,
                "images": part["images"],
                "miou": part["miou"],
                **_difference(against and against["slices"][name]),
                **{f"iou:{label}": iou for label, iou in part["per_class"].items()},
            }


def image_lines(images: Sequence[Json], slices: Sequence[str]) -> Iterable[dict[str, Any]]:
    """Each image's own scores under every network, and the slices it is in (0 or 1)."""
    for image in images:
        held = set(image["slices"])
        for model, scores in image["models"].items():
            yield {
                "image": image["image"],
                "model": model,
                "height": image["height"],
                "width": image["width"],
                "scored_pixels": image["scored_pixels"],
                **scores,
                **{f"slice:{name}": int(name in held) for name in slices},
            }


def _difference(entry: Json | None) -> dict[str, Any]:
    low, high = (entry["ci95"] if entry else None) or (None, None)
    return {
        "delta": entry["delta"] if entry else None,
        "ci95_low": low,
        "ci95_high": high,
        "significant": int(entry["significant"]) if entry else None,
    }


def _csv(lines: Iterable[dict[str, Any]]) -> bytes:
    """RFC 4180 with a header; an empty field for what cannot be said."""
    listed = list(lines)
    sink = io.StringIO(newline="")
    writer = csv.DictWriter(sink, list(listed[0]) if listed else ["model"], restval="")
    writer.writeheader()
    writer.writerows(listed)
    return sink.getvalue().encode("utf-8", "backslashreplace")
