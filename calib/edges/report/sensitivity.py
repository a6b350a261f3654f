"""The report of ``calib sensitivity``: which quantizers cost accuracy, where, and what work they save."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from calib.edges.report import svg
from calib.edges.report.evaluation_tables import LEAST_REACH, MOST_REACH, Cell, Row, Table
from calib.edges.report.evaluation_words import interval, points
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.formatting import MISSING, number, plural, share
from calib.edges.report.model import Level, Notice
from calib.edges.report.page import render_page
from calib.edges.report.svg.heat import tint

Json = Mapping[str, Any]
TITLES = {
    "ranking": "Ranking",
    "order": "Along the network",
    "classes": "By class",
    "slices": "By slice",
    "method": "How it was measured",
}
BARS = 24
"""Quantizers drawn as bars, and shown by class and slice."""
LONGEST = 16
"""Characters of a name beside its bar."""
FOLDED = 40
"""Rows of the ranking shown at first."""
SETTLED = {"resolution": "", "top": "below the top", "all": ""}


@dataclass(frozen=True)
class PageSubject:
    """What the page's frame names."""

    version: str


def render_sensitivity_report(document: Json) -> bytes:
    """Render the page: UTF-8 HTML, complete in itself, the same bytes for the same results.

    Args:
        document: what ``sensitivity.json`` holds.
    """
    level, words, detail = verdict_of(document)
    labelled = document["data"]["labelled"]
    top = document["units"][:BARS]
    context: dict[str, Any] = {
        "document": document,
        "subject": PageSubject(document["version"]),
        "level": level,
        "verdict": words,
        "detail": detail,
        "notices": [Notice("info", text) for text in document["notes"]],
        "ranking": ranking_table(document),
        "bars": _bars(document, top),
        "order": list(_order_figures(document)),
        "classes": class_table(document, top) if labelled and document["data"]["classes"] else None,
        "slices": slice_table(document, top) if labelled and document["slices"] else None,
        "method": document["ranking"],
    }
    present = [name for name in TITLES if context.get(name)]
    return render_page("sensitivity.html.j2", context, present, TITLES)


def verdict_of(document: Json) -> tuple[Level | None, str, str]:
    """What to tell first: a level (None when all is well), a short verdict, and a sentence of detail."""
    units, alone = document["units"], document["network"]["mode"] == "alone"
    first = units[0]
    together = document["together"]
    flips = f"{first['name']} flips {share(first['flips']['share'])} of the pixels"
    if first["loss"] is None:
        return (
            None,
            f"Most flips: {first['name']}",
            f"{flips}; all quantizers together {share(together['flips']['share'])}.",
        )
    resolution = document["ranking"]["resolution"]
    losers = document["costly"]
    whole = points(together["loss"]["miou"]["loss"])
    what = "All together" if alone else "Without any quantizer the loss is"
    detail = f"{what} {whole} points of mIoU lost, {share(together['flips']['share'])} of the pixels flipped. "
    detail += f"First in the ranking: {flips}, {points(first['loss']['miou']['loss'])} points."
    if not losers:
        return None, f"No quantizer alone is shown to cost {resolution:g} points", detail
    if document["network"]["unit"] == "layer":
        detail += " calib build … --keep-float @keep-float.txt leaves those layers in float."
    return "warning", f"{plural(len(losers), 'quantizer')} alone cost {resolution:g} points or more", detail


def _by(document: Json) -> str:
    """What is ranked by, for people."""
    return str(document["ranking"]["by"]).replace("miou", "mIoU").replace(":", " ", 1)


def lost(unit: Json, document: Json) -> Json | None:
    """What a unit loses in the measure that is ranked by."""
    if unit["loss"] is None:
        return None
    kind, _, name = document["ranking"]["by"].partition(":")
    found: Json | None = unit["loss"]["miou"]
    if kind in ("class", "slice"):
        found = unit["loss"]["per_class" if kind == "class" else "slices"].get(name)
    return found


def ranking_table(document: Json) -> Table:
    """Every unit in the order of rank."""
    labelled = document["data"]["labelled"]
    by = document["ranking"]["by"]
    head = ("loss", *([f"loss, {by}"] if by != "miou" else [])) if labelled else ()
    columns = (*head, "flipped", "SQNR, dB", "MACs", *(("loss per 1 % of MACs",) if labelled else ()), "images")
    reach = _reach(lost(unit, document) for unit in document["units"])
    rows = tuple(_ranking_row(unit, document, reach) for unit in document["units"])
    caption = "Quantizers, the most sensitive first; losses in points of IoU, with 95 % intervals"
    return Table("ranking-table", caption, "Quantizer", columns, rows)


def _ranking_row(unit: Json, document: Json, reach: float) -> Row:
    cells = []
    if unit["loss"] is not None:
        entries = [unit["loss"]["miou"], *([lost(unit, document)] if document["ranking"]["by"] != "miou" else [])]
        cells += [_loss_cell(entry, reach) for entry in entries]
    flips = unit["flips"]["share"]
    work = unit["macs_share"]
    cells += [
        Cell(share(flips), flips),
        Cell(MISSING if unit["sqnr_db"] is None else f"{unit['sqnr_db']:.1f}", unit["sqnr_db"]),
        Cell(share(work), work),
    ]
    if unit["loss"] is not None:
        per_work = unit["loss_per_percent_of_macs"]
        cells.append(Cell(MISSING if per_work is None else number(per_work, 3), per_work))
    cells.append(Cell(str(unit["images"]), unit["images"], SETTLED[unit["settled"]]))
    return Row(f"{unit['rank']}. {unit['name']}", tuple(cells), unit["op"], unit["rank"] > FOLDED)


def _loss_cell(entry: Json | None, reach: float) -> Cell:
    if entry is None or entry["loss"] is None:
        return Cell(MISSING)
    below = interval(entry["ci95"]) if "ci95" in entry else ""
    return Cell(
        points(entry["loss"], 3), entry["loss"], below, tint(-entry["loss"], reach), bool(entry.get("significant"))
    )


def _reach(entries: Iterator[Json | None] | Sequence[Json | None]) -> float:
    most = max((abs(item["loss"]) for item in entries if item is not None and item["loss"] is not None), default=0.0)
    return min(max(most, LEAST_REACH), MOST_REACH)


def short_name(name: str, op_type: str) -> str:
    """Shorten a name to what tells it from its neighbours.

    Exporters repeat a module's path in the names of its parts (``high/high.7/body/body.0``), and end with the operator.
    """
    parts = [part for part in name.split("/") if part]
    if len(parts) > 1 and parts[-1].partition("_")[0] == op_type:
        parts.pop()
    kept = [part for part, after in zip(parts, [*parts[1:], ""], strict=True) if not after.startswith(part)]
    text = "/".join(kept[-2:]) or name
    return text if len(text) <= LONGEST else f"…{text[1 - LONGEST :]}"


def _bars(document: Json, units: Sequence[Json]) -> Figure:
    """Draw the first units of the ranking, with their intervals; without labels the pixels they flip."""
    labelled = document["data"]["labelled"]
    if labelled:
        entries = [lost(unit, document) or {"loss": None, "ci95": None} for unit in units]
        bars = [
            svg.IntervalBar(
                short_name(unit["name"], unit["op"]),
                math.nan if entry["loss"] is None else entry["loss"],
                *(entry["ci95"] or (None, None)),
            )
            for unit, entry in zip(units, entries, strict=True)
        ]
        caption, digits = f"points of {_by(document)} lost", 3
    else:
        bars = [svg.IntervalBar(short_name(unit["name"], unit["op"]), 100 * unit["flips"]["share"]) for unit in units]
        caption, digits = "% of the pixels flipped", 3
    title = f"The first {len(units)} of {len(document['units'])}"
    words = "; ".join(f"{unit['name']} {bar.value:+.3f}" for unit, bar in zip(units[:8], bars, strict=False))
    drawn = svg.interval_bars(bars, about=svg.About("ranking-bars", title, words), caption=caption, digits=digits)
    note = "Bars are losses on the images each quantizer has seen; whiskers are 95 % intervals." if labelled else ""
    return Figure(title, drawn, DataTable(title, (), ()), (), note)


def _order_figures(document: Json) -> Iterator[Figure]:
    """Draw losses, flips and noise of all units in network order."""
    units = sorted(document["units"], key=lambda unit: unit["place"])
    missing = float("nan")
    if document["data"]["labelled"]:
        losses = [(lost(unit, document) or {}).get("loss") for unit in units]
        values = [missing if value is None else float(value) for value in losses]
        yield _stems("loss", f"Points of {_by(document)} lost", "points", units, values, 3)
    flips = [100 * unit["flips"]["share"] for unit in units]
    yield _stems("flips", "Pixels whose class changes", "% of the pixels", units, flips, 3)
    noise = [missing if unit["sqnr_db"] is None else float(unit["sqnr_db"]) for unit in units]
    if any(value == value for value in noise):  # noqa: PLR0124  NaN is no noise
        yield _stems("sqnr", "Signal to quantization noise of the scores", "dB; lower is worse", units, noise, 1)


def _stems(
    key: str, title: str, unit_words: str, units: Sequence[Json], values: Sequence[float], digits: int
) -> Figure:
    curve = svg.Line(title, values, 0)
    words = f"{title} of {plural(len(units), 'quantizer')} in network order"
    drawn = svg.stems(
        len(values), [curve], about=svg.About(f"order-{key}", title, words),
        x_caption="quantizers, in network order", y_caption=unit_words,
    )  # fmt: skip
    rows = tuple(
        (f"{place}. {unit['name']}", MISSING if value != value else f"{value:.{digits}f}")  # noqa: PLR0124
        for place, (unit, value) in enumerate(zip(units, values, strict=True), 1)
    )
    return Figure(title, drawn, DataTable(title, ("quantizer", unit_words), rows))


def class_table(document: Json, units: Sequence[Json]) -> Table:
    """Losses of the first units in every class."""
    names = document["data"]["classes"]
    reach = _reach([unit["loss"]["per_class"][name] for unit in units for name in names])
    rows = tuple(
        Row(unit["name"], tuple(_loss_cell(unit["loss"]["per_class"][name], reach) for name in names)) for unit in units
    )
    return Table("classes-table", "Loss in each class's IoU, in points", "Quantizer", tuple(names), rows)


def slice_table(document: Json, units: Sequence[Json]) -> Table:
    """Losses of the first units on every slice."""
    names = [name for name in document["slices"] if not name.startswith("rare:")]
    reach = _reach([unit["loss"]["slices"][name] for unit in units for name in names])
    rows = tuple(
        Row(unit["name"], tuple(_slice_cell(unit["loss"]["slices"][name], reach) for name in names)) for unit in units
    )
    return Table("slices-table", "Loss in each slice's mIoU, in points", "Quantizer", tuple(names), rows)


def _slice_cell(entry: Json, reach: float) -> Cell:
    cell = _loss_cell(entry, reach)
    return Cell(cell.text, cell.value, plural(entry["images"], "image"), cell.tint, cell.marked)
