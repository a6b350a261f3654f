"""Several series over many discrete places: a stem a place, a tick a series."""

from __future__ import annotations

import math
from collections.abc import Sequence

from calib.edges.report.svg.canvas import (
    About,
    Axis,
    Frame,
    chart,
    coordinate,
    element,
    nice_ticks,
    segment,
    series,
    tick_text,
    with_room,
    x_axis,
    y_axis,
    y_name,
)
from calib.edges.report.svg.lines import Line

WIDEST = 18.0
"""Pixels a tick is wide at most, where places are few."""


def stems(
    count: int,
    curves: Sequence[Line],
    *,
    about: About,
    x_caption: str = "",
    y_caption: str = "",
    frame: Frame | None = None,
) -> str:
    """Draw each series as ticks at places 1 to ``count``, joined at each place by a stem from zero to the highest.

    Unlike a curve it suggests nothing between the places.

    Args:
        count: number of places.
        curves: each of length ``count``; not finite where there is no value.
        about: id, title and description.
        x_caption: what a place is.
        y_caption: what the vertical axis measures.
        frame: size; the default suits a column.
    """
    values = [value for curve in curves for value in curve.values if math.isfinite(value)]
    low, high = min([0.0, *values]) * 1.06, max([0.0, *values]) * 1.06
    high = high if high > low else 1.0
    ticks = nice_ticks(low, high, 4)
    frame = with_room(frame or Frame(height=220, top=22, bottom=36, left=44), [tick_text(tick) for tick in ticks])
    x = Axis(0.5, max(count, 1) + 0.5, frame.x0, frame.x1)
    y = Axis(low, high, frame.y0, frame.y1)
    half = min(max((frame.x1 - frame.x0) / max(count, 1) * 0.5, 0.8), WIDEST / 2)
    content = [y_axis(frame, y, ticks), y_name(frame, y_caption)]
    if low < 0:
        content.append(segment(frame.x0, y(0.0), frame.x1, y(0.0), "zero"))
    content.append(_stems(count, curves, x, y))
    content.extend(_ticks(curve, x, y, half) for curve in curves)
    places = [tick for tick in nice_ticks(1.0, float(max(count, 1)), 8) if tick >= 1 and tick.is_integer()]
    content.append(x_axis(frame, x, places, x_caption))
    return chart(about, frame, "".join(content), "stems")


def _stems(count: int, curves: Sequence[Line], x: Axis, y: Axis) -> str:
    steps = []
    for place in range(count):
        found = [curve.values[place] for curve in curves if math.isfinite(curve.values[place])]
        if found:
            steps.append(f"M{coordinate(x(place + 1))} {coordinate(y(0.0))}V{coordinate(y(max(found)))}")
    return element("path", d="".join(steps), class_="stem") if steps else ""


def _ticks(curve: Line, x: Axis, y: Axis, half: float) -> str:
    steps = [
        f"M{coordinate(x(place) - half)} {coordinate(y(value))}h{coordinate(2 * half)}"
        for place, value in enumerate(curve.values, 1)
        if math.isfinite(value)
    ]
    return element("path", d="".join(steps), class_=f"tick {series(curve.style)}") if steps else ""
