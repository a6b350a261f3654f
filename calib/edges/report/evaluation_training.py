"""The PTQ/QAT section of the evaluation report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.edges.report import formatting, svg
from calib.edges.report.evaluation_tables import Cell, Row, Table
from calib.edges.report.evaluation_words import interval, points
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.svg.heat import tint

Json = Mapping[str, Any]


@dataclass(frozen=True)
class TrainingView:
    """One trained network in the section.

    Attributes:
        found: the entry of ``evaluation.json``.
        words: what the comparison says, in sentences.
        differences: every pair's difference with its interval.
        slices: every pair on every slice.
        cost: what the trainings cost, as rows of text.
        ranges: the ranges that moved most.
        weights: the weights that moved most.
    """

    found: Json
    words: tuple[str, ...]
    differences: Figure
    slices: Table
    cost: tuple[tuple[str, ...], ...]
    ranges: DataTable
    weights: DataTable


def training_views(document: Json) -> list[TrainingView]:
    """Prepare the section; empty without a trained network."""
    return [_view(place, found) for place, found in enumerate(document.get("trainings", ()))]


def _view(place: int, found: Json) -> TrainingView:
    return TrainingView(
        found=found,
        words=tuple(_sentence(pair) for pair in found["pairs"]),
        differences=_figure(place, found["pairs"]),
        slices=_slices(place, found["pairs"]),
        cost=tuple(_cost(name, cost) for name, cost in (found["cost"] or {}).items() if cost is not None),
        ranges=_ranges(found["ranges"]),
        weights=_weights(found["weights"]),
    )


def _sentence(pair: Json) -> str:
    entry = pair["miou"]
    verdict = "a significant difference" if entry["significant"] else "not told apart"
    role = pair["role"]
    return (
        f"{role[:1].upper()}{role[1:]}: {points(entry['delta'])} points of mIoU, {interval(entry['ci95'])}; {verdict}."
    )


def _short(pair: Json) -> str:
    return f"{pair['model']} − {pair['against']}"


def _delta(pair: Json) -> float:
    delta = pair["miou"]["delta"]
    return math.nan if delta is None else float(delta)


def _figure(place: int, pairs: Sequence[Json]) -> Figure:
    bars = [svg.IntervalBar(_short(pair), _delta(pair), *(pair["miou"]["ci95"] or (None, None))) for pair in pairs]
    title = "PTQ, QAT and control, points of mIoU"
    words = "; ".join(_sentence(pair) for pair in pairs)
    drawn = svg.interval_bars(bars, about=svg.About(f"training-{place}", title, words), caption="points of mIoU")
    rows = tuple(
        (pair["role"], _short(pair), points(pair["miou"]["delta"], 3),
         interval(pair["miou"]["ci95"]), "yes" if pair["miou"]["significant"] else "no")
        for pair in pairs
    )  # fmt: skip
    table = DataTable(title, ("pair", "networks", "points", "95 % interval", "significant"), rows)
    note = "Whiskers are 95 % intervals of the paired difference. What the control gains is the gain of training on."
    return Figure(title, drawn, table, (), note)


def _slices(place: int, pairs: Sequence[Json]) -> Table:
    names = list(pairs[0]["slices"]) if pairs else []
    rows = [
        Row(name, tuple(_cell(pair["slices"].get(name)) for pair in pairs), more=row >= 12)
        for row, name in enumerate(names)
    ]
    columns = tuple(pair["role"] for pair in pairs)
    whole = Row("all images", tuple(_cell(pair["miou"]) for pair in pairs))
    return Table(f"training-slices-{place}", "Differences in points, by slice", "Slice", columns, (whole, *rows))


def _cell(entry: Json | None) -> Cell:
    if entry is None or entry["delta"] is None:
        return Cell(formatting.MISSING)
    delta = float(entry["delta"])
    return Cell(points(delta), delta, interval(entry["ci95"]), tint(delta, 2.0), bool(entry["significant"]))


def _cost(name: str, cost: Json) -> tuple[str, ...]:
    steps, images = formatting.count(cost["steps"]), formatting.count(cost["images"])
    processes = f", {cost['processes']} processes" if cost["processes"] > 1 else ""
    return name, steps, images, f"{cost['seconds'] / 60:.1f} min", f"{cost['device']}{processes}"


def _ranges(items: Sequence[Json]) -> DataTable:
    rows = tuple(
        (item["tensor"], formatting.number(item["start"]), formatting.number(item["learnt"]),
         formatting.bits(item["bits"]))
        for item in items
    )  # fmt: skip
    return DataTable("Ranges that moved most", ("tensor", "amax at the start", "learnt amax", "bits"), rows)


def _weights(items: Sequence[Json]) -> DataTable:
    rows = tuple(
        (item["tensor"], formatting.share(item["change"]), formatting.bits(item["amax_bits"])) for item in items
    )
    return DataTable("Weights that moved most", ("weight", "change of its norm", "range, bits"), rows)
