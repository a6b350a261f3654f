"""Tables of the evaluation report: heat tables that sort, as plain values for the template."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from calib.edges.report.evaluation_words import Json, candidates, interval, percent, points, reference_of
from calib.edges.report.formatting import MISSING, shares
from calib.edges.report.svg.heat import tint

LEAST_REACH, MOST_REACH = 0.5, 4.0
"""Points at which a cell has the strongest tint: the largest difference, within these bounds."""


PLAIN_OUTPUT = "a channel a class"
"""What most networks answer with; not worth a line."""


@dataclass(frozen=True)
class Cell:
    """A cell: its text, what it sorts by, a second line, its tint (-4..4, None for none) and whether it is marked."""

    text: str
    value: float | None = None
    below: str = ""
    tint: int | None = None
    marked: bool = False


@dataclass(frozen=True)
class Row:
    """A row: name, a note below it, cells, and the group it belongs to (``more`` rows are folded at first)."""

    name: str
    cells: tuple[Cell, ...]
    note: str = ""
    more: bool = False


@dataclass(frozen=True)
class Table:
    """A table that sorts by any column.

    Attributes:
        key: unique within the page.
        caption: what it shows, with its unit.
        corner: heading of the row names.
        columns: headings.
        rows: in their natural order.
    """

    key: str
    caption: str
    corner: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def folded(self) -> int:
        """Rows shown only on demand."""
        return sum(row.more for row in self.rows)


def network_table(document: Json) -> Table:
    """One row a network: what it reaches, and what that is against the reference."""
    compared = document["reference"] is not None
    columns = ["mIoU", *(["difference"] if compared else []), "pixel accuracy", "boundary mIoU", "small objects found"]
    columns += [*(["flipped pixels"] if compared else []), "ties"]
    models = document["models"]
    flips = [model["vs_reference"]["flips"]["share"] if compared else None for model in models]
    ties = [model["ties"]["rate"] if model["ties"] else None for model in models]
    last = zip(*((_shares(flips), _shares(ties)) if compared else (_shares(ties),)), strict=True)
    rows = [_network_row(model, document["reference"], own) for model, own in zip(models, last, strict=True)]
    return Table("networks-table", "Networks; IoU and shares in percent", "Network", tuple(columns), tuple(rows))


def _shares(values: Sequence[float | None]) -> list[Cell]:
    """Cells of a column of shares."""
    return [Cell(text, value) for text, value in zip(shares(values), values, strict=True)]


def _network_row(model: Json, reference: str | None, last: Sequence[Cell]) -> Row:
    against = model["vs_reference"]
    cells = [Cell(percent(model["miou"]), model["miou"])]
    if against is not None:
        entry = against["miou"]
        own = model["name"] == reference
        text, below = ("reference", "") if own else (points(entry["delta"]), interval(entry["ci95"]))
        cells.append(Cell(text, entry["delta"], below, None, not own and entry["significant"]))
    recall = model["objects"]["small"]["recall"]
    cells += [
        Cell(percent(model["pixel_accuracy"]), model["pixel_accuracy"]),
        Cell(percent(model["boundary"]["miou"]), model["boundary"]["miou"]),
        Cell(percent(recall, 1), recall),
    ]
    note = "" if model["output"] == PLAIN_OUTPUT else str(model["output"])
    return Row(model["name"], (*cells, *last), note)


def class_table(document: Json) -> Table | None:
    """Differences of every class's IoU, or None without a reference."""
    reference = reference_of(document)
    if reference is None or not candidates(document):
        return None

    def cells(name: str) -> tuple[Cell, ...]:
        iou = reference["per_class"][name]
        found = (model["vs_reference"]["per_class"][name] for model in candidates(document))
        return (Cell(percent(iou), iou), *_differences(found, reach))

    reach = _reach(
        entry["delta"]
        for model in candidates(document)
        for entry in model["vs_reference"]["per_class"].values()
        if entry
    )
    whole = Row("all classes", (Cell(percent(reference["miou"]), reference["miou"]), *_mean_cells(document, reach)))
    rows = [whole, *(Row(name, cells(name)) for name in document["data"]["classes"])]
    return _compared("classes-table", "Difference of each class's IoU, in points", "Class", document, rows)


def _mean_cells(document: Json, reach: float) -> Iterable[Cell]:
    return _differences((model["vs_reference"]["miou"] for model in candidates(document)), reach)


def iou_table(document: Json) -> Table:
    """IoU of every class under every network."""
    return _by_class(document, "ious-table", "IoU of each class, in percent", lambda model: model)


def boundary_table(document: Json) -> Table:
    """Boundary IoU of every class under every network."""
    caption = "Boundary IoU of each class, in percent"
    return _by_class(document, "boundary-table", caption, lambda model: model["boundary"])


def _by_class(document: Json, key: str, caption: str, part: Callable[[Json], Json]) -> Table:
    models = document["models"]
    whole = Row("all classes", tuple(Cell(percent(part(m)["miou"]), part(m)["miou"]) for m in models))
    rows = [
        Row(name, tuple(Cell(percent(part(m)["per_class"][name]), part(m)["per_class"][name]) for m in models))
        for name in document["data"]["classes"]
    ]
    return Table(key, caption, "Class", tuple(m["name"] for m in models), (whole, *rows))


def slice_table(document: Json) -> Table:
    """Every slice: the reference's mIoU and the others' differences, or every network's mIoU; its images.

    The images come last, so that a phone shows differences before one has to scroll.
    """
    reference = reference_of(document)
    if reference is None or not candidates(document):
        rows = [_plain_slice(document, name) for name in document["slices"]]
        names = tuple(model["name"] for model in document["models"])
        return Table("slices-table", "mIoU of each slice, in percent", "Slice", (*names, "images"), tuple(rows))
    reach = _reach(
        entry["delta"] for model in candidates(document) for entry in model["vs_reference"]["slices"].values()
    )
    rows = [_slice_row(document, name, reference, reach) for name in _by_weight(document["slices"])]
    table = _compared("slices-table", "Difference of each slice's mIoU, in points", "Slice", document, rows)
    return Table(table.key, table.caption, table.corner, (*table.columns, "images"), table.rows)


def _slice_row(document: Json, name: str, reference: Json, reach: float) -> Row:
    part = document["slices"][name]
    miou = reference["slices"][name]["miou"]
    found = (model["vs_reference"]["slices"][name] for model in candidates(document))
    cells = (Cell(percent(miou), miou), *_differences(found, reach), Cell(str(part["images"]), part["images"]))
    return Row(name, cells, part["rule"], name.startswith("rare:"))


def _plain_slice(document: Json, name: str) -> Row:
    part = document["slices"][name]
    mious = [model["slices"][name]["miou"] for model in document["models"]]
    cells = (*(Cell(percent(miou), miou) for miou in mious), Cell(str(part["images"]), part["images"]))
    return Row(name, cells, part["rule"], name.startswith("rare:"))


def _by_weight(names: Iterable[str]) -> list[str]:
    """Slices in their order, those of rare classes last."""
    return sorted(names, key=lambda name: name.startswith("rare:"))


def flip_table(document: Json) -> Table:
    """Where pixels changed class, one row a network."""
    columns = ("flipped", "at boundaries", "inside", "were right", "are right now")
    names = ("share", "share_at_boundaries", "share_inside", "harmed", "helped")
    models = candidates(document)
    by_column = [_shares([model["vs_reference"]["flips"][name] for model in models]) for name in names]
    rows = [Row(model["name"], cells) for model, cells in zip(models, zip(*by_column, strict=True), strict=True)]
    caption = "Share of pixels whose class differs from the reference's"
    return Table("flips-table", caption, "Network", columns, tuple(rows))


def objects_table(document: Json) -> Table:
    """Objects found, by size."""
    models = document["models"]
    bands = models[0]["objects"]["bands"]
    rows = [
        Row(
            f"{band} px",
            (
                Cell(f"{bands[band]['objects']:,}".replace(",", "\u202f"), bands[band]["objects"]),
                *(
                    Cell(
                        percent(model["objects"]["bands"][band]["recall"], 1), model["objects"]["bands"][band]["recall"]
                    )
                    for model in models
                ),
            ),
        )
        for band in bands
    ]
    caption = "Objects found (at least half of their pixels right), in percent, by area in network input"
    return Table("objects-table", caption, "Area", ("objects", *(model["name"] for model in models)), tuple(rows))


def _compared(key: str, caption: str, corner: str, document: Json, rows: Sequence[Row]) -> Table:
    names = (document["reference"], *(model["name"] for model in candidates(document)))
    return Table(key, caption, corner, names, tuple(rows))


def _differences(entries: Iterable[Json | None], reach: float) -> list[Cell]:
    return [
        Cell(MISSING)
        if entry is None or entry["delta"] is None
        else Cell(
            points(entry["delta"]),
            entry["delta"],
            interval(entry["ci95"]),
            tint(entry["delta"], reach),
            entry["significant"],
        )
        for entry in entries
    ]


def _reach(deltas: Iterable[float | None]) -> float:
    most = max((abs(delta) for delta in deltas if delta is not None), default=0.0)
    return min(max(most, LEAST_REACH), MOST_REACH)
