"""The report of ``calib qat``: curves, what changed in ranges and weights, where the pairs stand, what it cost."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.edges.report import formatting, svg
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.model import Notice, PlacementSection, ProvenanceSection
from calib.edges.report.page import render_page
from calib.edges.report.placement import placement_view

Json = Mapping[str, Any]
TITLES = {
    "curves": "How the training went",
    "ranges": "What changed in the ranges",
    "weights": "What changed in the weights",
    "placement": "Placement",
    "provenance": "Provenance and next steps",
}
NAMES = {"qat": "with fake quantization", "control": "control, without"}
CHANGED_BITS = 0.5
"""A range that moved by this much or more is listed; the others are among the numbers."""


@dataclass(frozen=True)
class TrainingReport:
    """What the report shows.

    Attributes:
        document: what ``training.json`` holds.
        version: of calib.
        placement: where the pairs stand.
        notices: what the reader must know.
        provenance: files and next commands.
    """

    document: Json
    version: str
    placement: PlacementSection
    notices: tuple[Notice, ...]
    provenance: ProvenanceSection


@dataclass(frozen=True)
class _Subject:
    """What the page's frame asks for."""

    version: str
    model: str


def render_training(report: TrainingReport) -> bytes:
    """Render the report: UTF-8 HTML, the same bytes for the same report."""
    document = report.document
    context = {
        "report": report,
        "subject": _Subject(report.version, document["network"]),
        "document": document,
        "notices": report.notices,
        "runs": _runs(document),
        "curves": list(curve_figures(document)),
        "ranges": range_figure(document["ranges"]) if document["ranges"] else None,
        "weights": weight_figure(document["weights"]) if document["weights"] else None,
        "placement": placement_view(report.placement),
    }
    present = [name for name in TITLES if context.get(name) or name == "provenance"]
    return render_page("training.html.j2", context, present, TITLES)


def _runs(document: Json) -> list[dict[str, str]]:
    """The two trainings side by side, as text."""
    return [_run(name, document[name]) for name in NAMES if document[name] is not None]


def _run(name: str, found: Json) -> dict[str, str]:
    cost, curve = found["cost"], found["curve"]
    return {
        "training": NAMES[name],
        "steps": formatting.count(cost["steps"]),
        "images": formatting.count(cost["images"]),
        "time": f"{cost['seconds'] / 60:.1f} min",
        "device": cost["device"] + (f", {cost['processes']} processes" if cost["processes"] > 1 else ""),
        "validation mIoU before": f"{curve[0]['miou'] * 100:.2f}",
        "after": f"{curve[-1]['miou'] * 100:.2f}",
        "kept": f"step {found['kept']['step']} ({found['kept']['which']})",
    }


def curve_figures(document: Json) -> list[Figure]:
    """Draw validation mIoU, loss and learning rate over the steps, both trainings in one chart each."""
    runs = {NAMES[name]: document[name]["curve"] for name in NAMES if document[name] is not None}
    steps = sorted({point["step"] for curve in runs.values() for point in curve})
    quantities = (
        ("miou", "Validation mIoU against the start, points", _gain, "What is measured at step 0 is the start: the "
         "network with the calibrated ranges, and the float network."),
        ("loss", "Training loss", lambda point, curve: point["loss"], ""),
        ("lr", "Learning rate", lambda point, curve: point["lr"], ""),
    )  # fmt: skip
    return [
        _curve_figure(key, title, steps, {name: _series(curve, steps, value) for name, curve in runs.items()}, note)
        for key, title, value, note in quantities
    ]


def _gain(point: Json, curve: Sequence[Json]) -> float:
    return float(point["miou"] - curve[0]["miou"]) * 100


def _series(curve: Sequence[Json], steps: Sequence[int], value: Any) -> tuple[float, ...]:
    """One value a step, NaN where there is none."""
    known = {point["step"]: value(point, curve) for point in curve}
    return tuple(math.nan if known.get(step) is None else float(known[step]) for step in steps)


def _curve_figure(
    key: str, title: str, steps: Sequence[int], series: Mapping[str, tuple[float, ...]], note: str
) -> Figure:
    lines = [svg.Line(name, values, place) for place, (name, values) in enumerate(series.items())]
    ends = ", ".join(f"{name} ends at {formatting.number(values[-1])}" for name, values in series.items())
    drawn = svg.lines(
        steps,
        lines,
        about=svg.About(f"curve-{key}", title, ends),
        frame=svg.Frame(360, 240, 22, 14, 38, 52),
        x_caption="steps",
        y_caption=title,
        dots=len(steps) <= 30,
    )
    rows = tuple(
        (formatting.count(step), *(formatting.number(values[place]) for values in series.values()))
        for place, step in enumerate(steps)
    )
    legend = tuple((f"ln s{place % 8 + 1}", name) for place, name in enumerate(series))
    return Figure(title, drawn, DataTable(title, ("step", *series), rows), legend, note)


def range_figure(ranges: Sequence[Json]) -> Figure:
    """Draw by how many bits each quantized tensor's range moved, in network order."""
    moved = [math.nan if item["bits"] is None else item["bits"] for item in ranges]
    finite = [value for value in moved if math.isfinite(value)]
    far = sum(abs(value) >= CHANGED_BITS for value in finite)
    words = f"{len(finite)} ranges, {far} of them moved by {CHANGED_BITS:g} bits or more"
    title = "Learnt range against the range at the start, bits"
    rows = tuple(
        (item["tensor"], formatting.number(item["start"]), formatting.number(item["learnt"]),
         formatting.bits(item["bits"]))
        for item in sorted(ranges, key=lambda item: -abs(item["bits"] or 0.0))
    )  # fmt: skip
    note = (
        f"{words}. Above zero the range became wider and its steps coarser, below zero narrower and finer; "
        "what lies beyond it is clipped."
    )
    table = DataTable(title, ("tensor", "amax at the start", "learnt amax", "bits"), rows)
    return _stem_figure("ranges", title, moved, words, table, note)


def weight_figure(weights: Sequence[Json]) -> Figure:
    """Draw by how much of its own size each weight moved, in network order."""
    moved = [math.nan if item["change"] is None else item["change"] * 100 for item in weights]
    largest = max((value for value in moved if math.isfinite(value)), default=0.0)
    words = f"{len(weights)} weights and biases; the largest change is {largest:.3g} % of the tensor's norm"
    title = "Change of each weight, percent of its norm"
    rows = tuple(
        (item["tensor"], "x".join(map(str, item["shape"])), formatting.share(item["change"]),
         formatting.bits(item["amax_bits"]))
        for item in sorted(weights, key=lambda item: -(item["change"] or 0.0))
    )  # fmt: skip
    table = DataTable(title, ("weight", "shape", "change", "range, bits"), rows)
    return _stem_figure("weights", title, moved, words, table, f"{words}.")


def _stem_figure(key: str, title: str, values: Sequence[float], words: str, table: DataTable, note: str) -> Figure:
    drawn = [
        svg.stems(
            len(values),
            [svg.Line(title, values, 0)],
            about=svg.About(f"{key}-chart{suffix}", title, words),
            frame=svg.Frame(width, 230, 22, 14, 38, 48),
            x_caption="in network order",
            y_caption=title,
        )
        for suffix, width in (("", 1040.0), ("-narrow", 360.0))
    ]
    return Figure(title, drawn[0], table, note=note, narrow=drawn[1])
