"""Bars and dots: two sets side by side, and values with their intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calib.edges.report.formatting import MISSING
from calib.edges.report.svg.canvas import (
    About,
    Axis,
    Frame,
    chart,
    element,
    label,
    log_ticks,
    nice_ticks,
    octave_ticks,
    segment,
    series,
    shorten,
    text_width,
    tick_text,
    x_axis,
    y_axis,
)

ROW = 22.0
NAME_ROOM = 110.0
"""Pixels a row's name may take."""


def paired_bars(
    edges: Sequence[float],
    population: Sequence[float],
    selection: Sequence[float],
    *,
    about: About,
    caption: str = "",
    log: bool = False,
    width: float = 360,
) -> str:
    """Draw two histograms of shares over the same bins: the population as a filled outline, the selection as bars.

    Args:
        edges: bin edges, ascending, one more than bins.
        population: share of each bin, 0..1.
        selection: share of each bin, 0..1.
        about: id, title and description.
        caption: what the horizontal axis measures, with its unit.
        log: logarithmic horizontal axis, for edges that grow by a factor; all must be above zero.
        width: natural width in pixels.
    """
    frame = Frame(width, left=42, height=252, bottom=36)
    x = Axis(edges[0], edges[-1], frame.x0, frame.x1, log)
    top = (max([*population, *selection], default=0.0) or 1.0) * 1.08
    y = Axis(0.0, top, frame.y0, frame.y1)
    ticks = nice_ticks(0.0, top, 4)
    content = (
        y_axis(frame, y, ticks, [f"{tick_text(tick * 100)}%" for tick in ticks])
        + _outline(edges, population, x, y)
        + _inner_bars(edges, selection, x, y)
        + x_axis(frame, x, octave_ticks(x.low, x.high, 7) if log else nice_ticks(x.low, x.high, 6), caption)
    )
    return chart(about, frame, content, "paired")


def _outline(edges: Sequence[float], shares: Sequence[float], x: Axis, y: Axis) -> str:
    return "".join(
        element("rect", x=x(low), y=y(value), width=max(x(high) - x(low), 0.5), height=y(0.0) - y(value), class_="pop")
        for low, high, value in zip(edges, edges[1:], shares, strict=False)
        if value > 0
    )


def _inner_bars(edges: Sequence[float], shares: Sequence[float], x: Axis, y: Axis) -> str:
    parts = []
    for low, high, value in zip(edges, edges[1:], shares, strict=False):
        width = max(x(high) - x(low), 0.5)
        if value > 0:
            left, wide = x(low) + width * 0.25, width * 0.5
            parts.append(element("rect", x=left, y=y(value), width=wide, height=y(0.0) - y(value), class_="sel"))
    return "".join(parts)


def paired_dots(
    names: Sequence[str],
    population: Sequence[float],
    selection: Sequence[float],
    *,
    about: About,
    caption: str = "",
    width: float = 360,
) -> str:
    """Draw two shares a name as dots on a logarithmic axis, joined by a line: rare classes stay readable.

    A ring is the population, a disc the selection, and the factor between them stands at the right.
    A share of zero sits on the left end and its factor is left out.

    Args:
        names: one a row.
        population: share of each, 0..1.
        selection: share of each, 0..1.
        about: id, title and description.
        caption: what a share is a share of.
        width: natural width in pixels.
    """
    frame = Frame(width, height=len(names) * ROW + 44, top=6, left=_name_room(names), right=46, bottom=34)
    low, high = _share_bounds([*population, *selection])
    x = Axis(low, high, frame.x0, frame.x1, log=True)
    parts = [_dots_grid(frame, x, log_ticks(low, high, 5), caption)]
    for row, (name, whole, part) in enumerate(zip(names, population, selection, strict=True)):
        y = frame.y1 + (row + 0.5) * ROW
        parts.append(label(frame.x0 - 8, y + 4, shorten(name, NAME_ROOM), "", "end"))
        parts.append(segment(x(whole), y, x(part), y, "link"))
        parts.append(element("circle", cx=x(whole), cy=y, r=4.5, class_="ring"))
        parts.append(element("circle", cx=x(part), cy=y, r=4.5, class_="disc"))
        if whole > 0 and part > 0:
            parts.append(label(frame.width - 2, y + 4, f"×{part / whole:.2g}", "tk", "end"))
    return chart(about, frame, "".join(parts), "dots")


def _dots_grid(frame: Frame, x: Axis, ticks: Sequence[float], caption: str) -> str:
    lines = "".join(segment(x(tick), frame.y0, x(tick), frame.y1, "gr") for tick in ticks)
    texts = "".join(label(x(tick), frame.y0 + 14, f"{tick_text(tick * 100)}%", "tk", "middle") for tick in ticks)
    return lines + texts + label(frame.x1, frame.height - 3, shorten(caption, frame.x1 - 4), "cap", "end")


def _share_bounds(values: Sequence[float]) -> tuple[float, float]:
    above = [value for value in values if value > 0]
    if not above:
        return 0.01, 1.0
    low = 10.0 ** math.floor(math.log10(min(above)))
    return low, max(10.0 ** math.ceil(math.log10(max(above))), low * 10)


@dataclass(frozen=True)
class IntervalBar:
    """A value with its interval.

    Attributes:
        name: of the row.
        value: not finite where there is none: the row has no bar then.
        low: lower end of the interval, None where none is known.
        high: upper end.
        style: series style.
        text: stands at the right instead of the value, where given.
    """

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    style: int = 0
    text: str | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The interval, where both ends are known and finite."""
        known = self.low is not None and self.high is not None
        return (self.low, self.high) if known and all(map(math.isfinite, (self.low, self.high))) else None  # type: ignore[return-value,arg-type]

    @property
    def reach(self) -> tuple[float, ...]:
        """Every number that has to fit on the axis."""
        return tuple(item for item in (self.value, *(self.interval or ())) if math.isfinite(item))

    def shown(self, digits: int) -> str:
        """The text at the right."""
        if self.text is not None:
            return self.text
        return f"{self.value:+.{digits}f}".replace("-", "−") if math.isfinite(self.value) else MISSING


def interval_bars(
    bars: Sequence[IntervalBar],
    *,
    about: About,
    caption: str = "",
    digits: int = 2,
    width: float = 360,
    room: float = NAME_ROOM,
) -> str:
    """Draw horizontal bars from zero with interval whiskers, and each value as text.

    Args:
        bars: one a row, in order.
        about: id, title and description.
        caption: what the axis measures, with its unit.
        digits: decimals of the values at the right.
        width: natural width in pixels.
        room: pixels a row's name may take.
    """
    left = _name_room([bar.name for bar in bars], room)
    right = max([56.0, *(text_width(bar.shown(digits)) + 12 for bar in bars)])
    frame = Frame(width, height=len(bars) * ROW + 44, top=6, left=left, right=min(right, width * 0.3), bottom=34)
    low, high = (pick([0.0, *(item for bar in bars for item in bar.reach)]) for pick in (min, max))
    margin = (high - low) * 0.04
    x = Axis(low - margin * (low < 0), high + margin * (high > 0) if high > low else 1.0, frame.x0, frame.x1)
    ticks = nice_ticks(x.low, x.high, 5)
    parts = [segment(x(tick), frame.y0, x(tick), frame.y1, "gr") for tick in ticks]
    for row, bar in enumerate(bars):
        parts.append(_interval_row(bar, x, frame, frame.y1 + (row + 0.5) * ROW, digits))
    parts.append(x_axis(frame, x, ticks, caption))
    parts.append(segment(x(0.0), frame.y0, x(0.0), frame.y1, "zero"))
    return chart(about, frame, "".join(parts), "intervals")


def _interval_row(bar: IntervalBar, x: Axis, frame: Frame, y: float, digits: int) -> str:
    parts = [label(frame.x0 - 8, y + 4, shorten(bar.name, frame.x0 - 14), "", "end")]
    if math.isfinite(bar.value):
        left, right = sorted((x(0.0), x(bar.value)))
        parts.append(
            element("rect", x=left, y=y - 6, width=right - left, height=12.0, class_=f"bar {series(bar.style)}")
        )
    parts.append(label(frame.width - 2, y + 4, shorten(bar.shown(digits), frame.right), "tk", "end"))
    if bar.interval is not None:
        low, high = bar.interval
        parts.append(segment(x(low), y, x(high), y, "whisker"))
        parts.extend(segment(x(end), y - 3.5, x(end), y + 3.5, "whisker") for end in (low, high))
    return "".join(parts)


def _name_room(names: Sequence[str], most: float = NAME_ROOM) -> float:
    return min(max([text_width(name) for name in names], default=0.0), most) + 14
