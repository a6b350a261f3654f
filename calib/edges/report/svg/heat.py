"""A table of numbers with tinted cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calib.edges.report.formatting import MISSING
from calib.edges.report.svg.canvas import element, text_of

STEPS = 4
"""Tints on each side of the middle; the style sheet has classes ``h-4`` … ``h0`` … ``h4``."""


@dataclass(frozen=True)
class HeatTable:
    """Numbers by row and column.

    Attributes:
        caption: what the table shows, with its unit.
        corner: heading of the row names.
        columns: column names.
        rows: row names.
        values: one list a row; None (or NaN) where there is no value.
    """

    caption: str
    corner: str
    columns: Sequence[str]
    rows: Sequence[str]
    values: Sequence[Sequence[float | None]]


def heat_table(table: HeatTable, *, reach: float | None = None, digits: int = 2, signed: bool = True) -> str:
    """Write an HTML table whose cells are tinted by value, zero untinted; the numbers stay readable in every tint.

    Args:
        table: names and numbers.
        reach: magnitude of the strongest tint; default the largest in the table.
        digits: decimals.
        signed: write a plus sign.
    """
    present = [abs(value) for row in table.values for value in row if value is not None and math.isfinite(value)]
    reach = reach or max(present, default=0.0) or 1.0
    head = element("th", text_of(table.corner), scope="col") + "".join(
        element("th", text_of(name), scope="col") for name in table.columns
    )
    sign = "+" if signed else ""
    body = "".join(
        element(
            "tr", element("th", text_of(name), scope="row") + "".join(_cell(v, reach, f"{sign}.{digits}f") for v in row)
        )
        for name, row in zip(table.rows, table.values, strict=True)
    )
    content = (
        element("caption", text_of(table.caption)) + element("thead", element("tr", head)) + element("tbody", body)
    )
    return element("table", content, class_="heat")


def _cell(value: float | None, reach: float, pattern: str) -> str:
    if value is None or not math.isfinite(value):
        return element("td", MISSING, class_="h0")
    return element("td", text_of(format(value, pattern)), class_=f"h{tint(value, reach)}")


def tint(value: float, reach: float) -> int:
    """Choose a tint from ``-STEPS`` to ``STEPS`` for a finite value; zero only for values that round to none."""
    part = min(max(value / reach, -1.0), 1.0)
    return round(part * STEPS)
