"""The picture of two files of ranges side by side: one chart as SVG, or a page with the table."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from calib import __version__
from calib.core.printable import counted
from calib.edges.report.formatting import bits, listed, number
from calib.edges.report.page import bundle, render_page
from calib.edges.report.svg import About, Frame, IntervalBar, Line, interval_bars, stems
from calib.edges.report.svg.canvas import text_width
from calib.stages.rangediff import Change, TableDiff

TITLES = {"order": "Along the network", "largest": "Largest differences", "tensors": "Tensors"}
LARGEST = 24
"""Bars of the second chart."""
WIDE = Frame(760, 280, top=22, bottom=36, left=48)
NARROW = Frame(360, 240, top=22, bottom=36, left=40)
"""Size of the first chart on a page and on a narrow screen, where a wide one's text would be too small to read."""
NAMES = 0.42
"""Share of a chart's width that names may take."""
OUTPUT = re.compile(r"_output_0\Z")
"""What exporters end nearly every name with; beside a bar it tells nothing."""
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


def ratio_chart(diff: TableDiff, subject: DiffSubject, frame: Frame = WIDE, key: str = "ratio") -> str:
    """Draw the ratio of every common tensor in the first file's order, in bits.

    Args:
        diff: what to draw.
        subject: the files' names.
        frame: size.
        key: id of the chart, one of its own on a page.
    """
    values = [item.bits for item in diff.changes]
    moved = sum(abs(value) > BIT for value in values if math.isfinite(value))
    description = (
        f"log2 of amax in {subject.second} over amax in {subject.first} for {len(values)} tensors; "
        f"{moved} differ by more than half a bit."
    )
    about = About(key, f"{subject.second} against {subject.first}", description)
    curve = Line("ratio", values, 0)
    return stems(
        len(values),
        [curve],
        about=about,
        x_caption="tensors, in the first file's order",
        y_caption="bits: log2(second / first)",
        frame=frame,
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
        "order": {"svg": ratio_chart(diff, subject), "narrow": ratio_chart(diff, subject, NARROW, "ratio-narrow")},
        "largest": {"svg": _largest_chart(largest, WIDE), "narrow": _largest_chart(largest, NARROW)},
        "rows": [_row(item) for item in diff.by_size],
        "only": [(subject.first, diff.only_first), (subject.second, diff.only_second)],
    }
    return render_page("rangediff.html.j2", context, [name for name in TITLES if present[name]], TITLES)


def _largest_chart(changes: list[Change], frame: Frame) -> str:
    about = About(f"largest-{frame.width:g}", "Largest differences", "The tensors whose ranges differ most, in bits.")
    room = frame.width * NAMES
    bars = [IntervalBar(_tail(item.name, room), item.bits, style=0) for item in changes]
    return interval_bars(bars, about=about, caption="bits: log2(second / first)", width=frame.width, room=room)


def _tail(name: str, room: float) -> str:
    """Keep the end of a long name: the front is the same for whole blocks of a network."""
    told = OUTPUT.sub("", name)
    while text_width(told) > room:
        told = f"…{told.removeprefix('…')[1:]}"
    return told


def _row(item: Change) -> DiffRow:
    other = item.other if item.other != item.name else ""
    shown = bits(item.bits) if math.isfinite(item.bits) else str(item.bits)
    return DiffRow(item.name, other, _amax(item.before), _amax(item.after), shown)


def _amax(value: float) -> str:
    return number(value) if math.isfinite(value) else str(value)


def summary(diff: TableDiff) -> str:
    """Say in a sentence how two files differ."""
    if diff.identical:
        return f"The same {counted(len(diff.changes), 'range')}."
    finite = [abs(item.bits) for item in diff.changes if math.isfinite(item.bits)]
    moved = [item.name for item in diff.by_size if not abs(item.bits) <= BIT]
    equal = sum(item.bits == 0 for item in diff.changes)
    parts = [f"{counted(len(diff.changes), 'tensor')} in both" + (f", {equal} of them equal" if diff.changes else "")]
    if moved:
        parts.append(f"{counted(len(moved), 'differs', 'differ')} by more than half a bit ({listed(moved)})")
    if finite:
        parts.append(f"the mean difference is {sum(finite) / len(finite):.3g} bits")
    if diff.renamed:
        parts.append(f"{counted(len(diff.renamed), 'has', 'have')} another name")
    parts += [f"{len(names)} only in the {which}" for which, names in _alone(diff) if names]
    return "; ".join(parts) + "."


def _alone(diff: TableDiff) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return ("first", diff.only_first), ("second", diff.only_second)
