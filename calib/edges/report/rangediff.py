"""The picture of two files of ranges side by side: one chart as SVG, or a page with the table."""

from __future__ import annotations

import math
from dataclasses import dataclass

from calib import __version__
from calib.edges.report.formatting import bits, listed, number
from calib.edges.report.page import bundle, render_page
from calib.edges.report.svg import About, Frame, IntervalBar, Line, interval_bars, stems
from calib.stages.rangediff import Change, TableDiff

TITLES = {"order": "Along the network", "largest": "Largest differences", "tensors": "Tensors"}
LARGEST = 24
"""Bars of the second chart."""
LONGEST = 16
"""Characters of a name beside its bar."""
PAGE_STYLES = ("tokens.css", "charts.css")
BIT = 0.5
"""Differences above this are worth a look: half a bit is 41 % of the range."""


@dataclass(frozen=True)
class DiffSubject:
    """What a page of differences is about."""

    first: str
    second: str
    version: str = __version__


@dataclass(frozen=True)
class DiffRow:
    """A tensor as the page's table shows it."""

    name: str
    other: str
    before: str
    after: str
    bits: str


def ratio_chart(diff: TableDiff, subject: DiffSubject, frame: Frame | None = None) -> str:
    """Draw the ratio of every common tensor in the first file's order, in bits."""
    values = [item.bits for item in diff.changes]
    moved = sum(abs(value) > BIT for value in values if math.isfinite(value))
    description = (
        f"log2 of amax in {subject.second} over amax in {subject.first} for {len(values)} tensors; "
        f"{moved} differ by more than half a bit."
    )
    about = About("ratio", f"{subject.second} against {subject.first}", description)
    curve = Line("ratio", values, 0)
    return stems(
        len(values),
        [curve],
        about=about,
        x_caption="tensors, in the first file's order",
        y_caption="bits: log2(second / first)",
        frame=frame or Frame(760, 280, top=22, bottom=36, left=48),
    )


def diff_svg(diff: TableDiff, subject: DiffSubject) -> bytes:
    """Render the chart as an SVG file that needs nothing beside it."""
    style = f"<style>{bundle(PAGE_STYLES)}</style>"
    ground = '<rect width="100%" height="100%" style="fill:var(--card)"/>'
    drawn = ratio_chart(diff, subject).replace("</desc>", f"</desc>{style}{ground}", 1)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{drawn}\n'.encode()


def diff_page(diff: TableDiff, subject: DiffSubject) -> bytes:
    """Render the page: both charts, every tensor, and what only one file has."""
    largest = [item for item in diff.by_size if math.isfinite(item.bits) and item.bits][:LARGEST]
    present = {"order": diff.changes, "largest": largest, "tensors": diff.changes}
    context = {
        "subject": subject,
        "diff": diff,
        "headers": diff.headers,
        "summary": summary(diff),
        "order": ratio_chart(diff, subject) if diff.changes else "",
        "largest": _largest_chart(largest) if largest else "",
        "rows": [_row(item) for item in diff.by_size],
        "only": [(subject.first, diff.only_first), (subject.second, diff.only_second)],
    }
    return render_page("rangediff.html.j2", context, [name for name in TITLES if present[name]], TITLES)


def _largest_chart(changes: list[Change]) -> str:
    about = About("largest-bits", "Largest differences", "The tensors whose ranges differ most, in bits.")
    bars = [IntervalBar(_tail(item.name), item.bits, style=0) for item in changes]
    return interval_bars(bars, about=about, caption="bits: log2(second / first)")


def _tail(name: str) -> str:
    """Keep the end of a long name: the front is the same for whole blocks of a network."""
    return name if len(name) <= LONGEST else f"…{name[1 - LONGEST :]}"


def _row(item: Change) -> DiffRow:
    other = item.other if item.other != item.name else ""
    shown = bits(item.bits) if math.isfinite(item.bits) else str(item.bits)
    return DiffRow(item.name, other, _amax(item.before), _amax(item.after), shown)


def _amax(value: float) -> str:
    return number(value) if math.isfinite(value) else str(value)


def summary(diff: TableDiff) -> str:
    """Say in a sentence how two files differ."""
    if diff.identical:
        return f"The same {len(diff.changes)} ranges."
    finite = [abs(item.bits) for item in diff.changes if math.isfinite(item.bits)]
    moved = [item.name for item in diff.by_size if not abs(item.bits) <= BIT]
    parts = [f"{len(diff.changes)} tensors in both, {sum(item.bits == 0 for item in diff.changes)} of them equal"]
    if moved:
        parts.append(f"{len(moved)} differ by more than half a bit ({listed(moved)})")
    if finite:
        parts.append(f"the mean difference is {sum(finite) / len(finite):.3g} bits")
    if diff.renamed:
        parts.append(f"{len(diff.renamed)} have another name")
    parts += [f"{len(names)} only in the {which}" for which, names in _alone(diff) if names]
    return "; ".join(parts) + "."


def _alone(diff: TableDiff) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("first", diff.only_first), ("second", diff.only_second)
