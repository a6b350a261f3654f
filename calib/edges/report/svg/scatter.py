"""Points in the plane, for example each image's score under two networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    text_of,
    tick_text,
    with_room,
    x_axis,
    y_axis,
    y_name,
)

_SHAPES = (
    "M-3.2 0a3.2 3.2 0 1 0 6.4 0a3.2 3.2 0 1 0-6.4 0Z",
    "M-3-3H3V3H-3Z",
    "M0-3.9L3.9 3H-3.9Z",
    "M0-4.2L4.2 0L0 4.2L-4.2 0Z",
)


@dataclass(frozen=True)
class Point:
    """A point, the name shown when it is pointed at, and its series."""

    x: float
    y: float
    name: str
    style: int = 0


def scatter(
    points: Sequence[Point],
    *,
    about: About,
    x_caption: str = "",
    y_caption: str = "",
    diagonal: bool = False,
    frame: Frame | None = None,
) -> str:
    """Draw points; series differ in shape as well as colour.

    Args:
        points: finite coordinates.
        about: id, title and description.
        x_caption: what the horizontal axis measures.
        y_caption: what the vertical axis measures.
        diagonal: give both axes the same bounds and draw the line of equality.
        frame: size; the default suits a column.

    Raises:
        ValueError: a coordinate is not finite.
    """
    frame = frame or Frame(height=320, top=22, bottom=36, left=46)
    horizontal, vertical = _bounds([point.x for point in points]), _bounds([point.y for point in points])
    if diagonal:
        horizontal = vertical = (min(horizontal[0], vertical[0]), max(horizontal[1], vertical[1]))
    ticks = nice_ticks(*vertical, 5)
    frame = with_room(frame, [tick_text(tick) for tick in ticks])
    x, y = Axis(*horizontal, frame.x0, frame.x1), Axis(*vertical, frame.y0, frame.y1)
    content = [y_axis(frame, y, ticks), y_name(frame, y_caption)]
    if diagonal:
        content.append(segment(frame.x0, frame.y0, frame.x1, frame.y1, "level"))
    content.extend(_mark(point, x, y) for point in points)
    content.append(x_axis(frame, x, nice_ticks(*horizontal, 6), x_caption))
    return chart(about, frame, "".join(content), "scatter")


def _mark(point: Point, x: Axis, y: Axis) -> str:
    shape = _SHAPES[point.style % len(_SHAPES)]
    place = f"translate({coordinate(x(point.x))} {coordinate(y(point.y))})"
    name = element("title", text_of(point.name))
    return element("path", name, d=shape, transform=place, class_=f"pt {series(point.style)}")


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    if not values:
        return 0.0, 1.0
    low, high = min(values), max(values)
    room = (high - low) * 0.05 or max(abs(high) * 0.05, 0.05)
    return low - room, high + room
