"""The demo's page: what every variant costs on every slice, and the way to the builds' own reports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib import __version__
from calib.demo.classes import CLASS_COLOURS, VOID
from calib.edges.report.page import render_page
from calib.edges.report.svg import HeatTable, heat_table
from calib.edges.report.thumbnails import thumbnail_jpeg

Pixels = NDArray[np.uint8]

STRONG = 5.0
"""Points of IoU at which the tint of a cell is deepest."""

TITLES = {"scenes": "The scenes", "accuracy": "What INT8 costs", "classes": "Class by class", "builds": "The builds"}


@dataclass(frozen=True)
class _Subject:
    """What the page's frame asks for."""

    version: str


@dataclass(frozen=True)
class BuildLink:
    """A build's name, sampler and report, relative to the page."""

    name: str
    sampler: str
    report: str


COLUMNS: Mapping[str, str | None] = {
    "all": None,
    "day": "light=day",
    "dusk": "light=dusk",
    "night": "light=night",
    "small objects": "small-objects",
    "dark pixels": "dark-pixels",
}
"""Heading to slice of the evaluation; None for the whole split."""


def columns_of(evaluation: Mapping[str, Any]) -> list[str]:
    """Headings of the slices that the evaluation could make, ``all`` first."""
    slices = evaluation["models"][0]["slices"]
    return [heading for heading, name in COLUMNS.items() if name is None or name in slices]


def reference_row(evaluation: Mapping[str, Any]) -> list[float]:
    """Mean IoU of the reference by column, percent."""
    model = evaluation["models"][0]
    names = [COLUMNS[heading] for heading in columns_of(evaluation)]
    return [100.0 * (model["miou"] if name is None else model["slices"][name]["miou"]) for name in names]


def differences(model: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Difference to the reference by column: ``delta`` and ``ci95`` in points."""
    found = model["vs_reference"]
    return [found["miou"] if name is None else found["slices"][name] for name in COLUMNS.values() if _has(found, name)]


def _has(found: Mapping[str, Any], name: str | None) -> bool:
    return name is None or name in found["slices"]


def interval_text(difference: Mapping[str, Any]) -> str:
    """Write a difference with its interval."""
    if difference["ci95"] is None:
        return f"{difference['delta']:+.2f}"
    low, high = difference["ci95"]
    return f"{difference['delta']:+.2f} [{low:+.2f}, {high:+.2f}]"


def render_demo_page(
    evaluation: Mapping[str, Any],
    samplers: Mapping[str, str],
    images: int,
    scenes: Sequence[tuple[str, Pixels, Pixels]],
) -> bytes:
    """Render the page: UTF-8 HTML, the same bytes for the same evaluation.

    Args:
        evaluation: what ``evaluation.json`` of ``calib evaluate`` holds, the float network first.
        samplers: sampler spec by build name.
        images: how many images each build calibrated on.
        scenes: name, RGB picture ``[H, W, 3]`` and label ``[H, W]`` of the scenes to show.
    """
    variants = evaluation["models"][1:]
    columns = columns_of(evaluation)
    context = {
        "subject": _Subject(__version__),
        "images": images,
        "reference": list(zip(columns, reference_row(evaluation), strict=True)),
        "slices": _heat("mIoU minus the float network's, in points", columns, variants, _slice_deltas),
        "classes": _heat("IoU minus the float network's, in points", _class_names(variants), variants, _class_deltas),
        "columns": columns,
        "scenes": [(name, _side_by_side(image, label)) for name, image, label in scenes],
        "intervals": [(model["name"], [interval_text(item) for item in differences(model)]) for model in variants],
        "builds": [BuildLink(name, spec, f"builds/{name}/report.html") for name, spec in samplers.items()],
    }
    return render_page("demo.html.j2", context, list(TITLES), TITLES)


def _side_by_side(image: Pixels, label: Pixels) -> bytes:
    """Put a scene beside its label in the colours of the classes, void black; a JPEG."""
    palette = np.zeros((VOID + 1, 3), np.uint8)
    palette[: len(CLASS_COLOURS)] = CLASS_COLOURS
    both = np.hstack([image, palette[label]])
    return thumbnail_jpeg(both, longest=both.shape[1], quality=88)


def _class_names(variants: Sequence[Mapping[str, Any]]) -> list[str]:
    return list(variants[0]["vs_reference"]["per_class"])


def _slice_deltas(model: Mapping[str, Any]) -> list[float]:
    return [float(item["delta"]) for item in differences(model)]


def _class_deltas(model: Mapping[str, Any]) -> list[float | None]:
    return [None if item is None else float(item["delta"]) for item in model["vs_reference"]["per_class"].values()]


def _heat(caption: str, columns: Sequence[str], variants: Sequence[Mapping[str, Any]], values: Any) -> str:
    table = HeatTable(
        caption=caption,
        corner="images, calibrator",
        columns=columns,
        rows=[model["name"] for model in variants],
        values=[values(model) for model in variants],
    )
    return heat_table(table, reach=STRONG)
