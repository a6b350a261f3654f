"""Curves over a common horizontal axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from calib.edges.report.svg.canvas import (
    About,
    Axis,
    Frame,
    chart,
    element,
    label,
    log_ticks,
    nice_ticks,
    path,
    segment,
    series,
    shorten,
    tick_text,
    with_room,
    x_axis,
    y_axis,
    y_name,
)


@dataclass(frozen=True)
class Line:
    """A curve: one value an ``x``, not finite where there is a gap."""

    name: str
    values: Sequence[float]
    style: int


def lines(
    x_values: Sequence[float],
    curves: Sequence[Line],
    *,
    about: About,
    x_caption: str = "",
    y_caption: str = "",
    frame: Frame | None = None,
    log: bool = False,
    level: float | None = None,
    level_name: str = "",
    mark: float | None = None,
    mark_name: str = "",
    dots: bool = True,
) -> str:
    """Draw curves, with an optional horizontal level and a marked ``x``.

    Args:
        x_values: ascending.
        curves: each of the length of ``x_values``.
        about: id, title and description.
        x_caption: what the horizontal axis measures.
        y_caption: what the vertical axis measures.
        frame: size; the default suits a column.
        log: logarithmic vertical axis; values not above zero become gaps.
        level: value of a dashed horizontal line, or None.
        level_name: its label.
        mark: ``x`` of a dashed vertical line, or None.
        mark_name: its label.
        dots: whether points are drawn on the curves.
    """
    frame = frame or Frame(height=220, top=22, bottom=36, left=44)
    shown = [value for curve in curves for value in curve.values if _drawable(value, log)]
    y = _vertical([*shown, *([level] if level is not None and _drawable(level, log) else [])], frame, log)
    ticks = log_ticks(y.low, y.high, 4) if log else nice_ticks(y.low, y.high, 4)
    frame = with_room(frame, [tick_text(tick) for tick in ticks])
    x = Axis(*_bounds(x_values), frame.x0, frame.x1)
    content = [y_axis(frame, y, ticks), y_name(frame, y_caption)]
    if level is not None and _drawable(level, log):
        content.append(segment(frame.x0, y(level), frame.x1, y(level), "level"))
        content.append(_level_label(frame, y, level, curves, level_name))
    content.extend(_curve(x_values, curve, (x, y), dots) for curve in curves)
    content.append(x_axis(frame, x, nice_ticks(x.low, x.high, 7), x_caption))
    if mark is not None:
        content.append(segment(x(mark), frame.y0, x(mark), frame.y1, "mark"))
        anchor, shift = ("end", -5) if x(mark) > (frame.x0 + frame.x1) / 2 else ("start", 5)
        crowded = level is not None and _drawable(level, log) and y(level) < frame.y1 + 26
        height = frame.y0 - 8 if crowded else frame.y1 + 8
        content.append(label(x(mark) + shift, height, shorten(mark_name, frame.width / 2 - 16), "halo", anchor))
    return chart(about, frame, "".join(content), "lines")


def _level_label(frame: Frame, y: Axis, level: float, curves: Sequence[Line], text: str) -> str:
    """Label the level at the end where the curves are farther from it."""

    def nearest(place: int) -> float:
        ends = [curve.values[place] for curve in curves if curve.values and _drawable(curve.values[place], y.log)]
        return min((abs(y(value) - y(level)) for value in ends), default=0.0)

    x, anchor = (frame.x0 + 8, "start") if curves and nearest(0) > nearest(-1) else (frame.x1, "end")
    return label(x, y(level) - 5, shorten(text, frame.width / 2), "halo", anchor)


def _drawable(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    return (min(values), max(values)) if values else (0.0, 1.0)


def _vertical(values: Sequence[float], frame: Frame, log: bool) -> Axis:
    if log:
        low, high = _bounds(values or [1.0])
        bottom = 10.0 ** math.floor(math.log10(low))
        return Axis(bottom, max(10.0 ** math.ceil(math.log10(high)), bottom * 10), frame.y0, frame.y1, log=True)
    low, high = _bounds([0.0, *values])
    return Axis(low, high + (high - low) * 0.06 if high > low else low + 1.0, frame.y0, frame.y1)


def _curve(x_values: Sequence[float], curve: Line, axes: tuple[Axis, Axis], dots: bool) -> str:
    (x, y), style = axes, series(curve.style)
    parts: list[str] = []
    for run in _runs(x_values, curve.values, y.log):
        placed = [(x(place), y(value)) for place, value in run]
        parts.append(path(placed, f"ln {style}"))
        if dots or len(run) == 1:
            parts.extend(element("circle", cx=px, cy=py, r=2.6, class_=f"dot {style}") for px, py in placed)
    return "".join(parts)


def _runs(x_values: Sequence[float], values: Sequence[float], log: bool) -> list[list[tuple[float, float]]]:
    """Split a curve at its gaps."""
    runs: list[list[tuple[float, float]]] = [[]]
    for place, value in zip(x_values, values, strict=True):
        if _drawable(value, log):
            runs[-1].append((place, value))
        else:
            runs.append([])
    return [run for run in runs if run]
