"""The histogram of a tensor's magnitudes with every calibrator's threshold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calib.edges.report.svg.canvas import (
    About,
    Axis,
    Frame,
    chart,
    coordinate,
    decoration,
    element,
    label,
    nice_ticks,
    power_text,
    segment,
    series,
    shorten,
    text_width,
    x_axis,
    y_axis,
)

Side = Literal["right", "left", "over"]
LABEL_ROW = 15.0
GAP = 5.0
"""Between a line and its label."""
HALF_COUNT = 0.5
"""Baseline of the logarithmic count axis: a single value still stands above it."""


@dataclass(frozen=True)
class Threshold:
    """A vertical line at ``value``: its name, the text after it, and which series style draws it."""

    name: str
    value: float
    text: str
    style: int

    @property
    def caption(self) -> str:
        """The full label."""
        return f"{self.name} {self.text}".strip()


def coarsen(bins: NDArray[np.int64], most: int) -> tuple[NDArray[np.int64], int]:
    """Sum neighbouring bins by the smallest power of two that leaves at most ``most``; trailing zeros are dropped.

    Args:
        bins: int64 counts.
        most: bins wanted at most, at least 1.

    Returns:
        The counts, whose sum is unchanged, and how many original bins one of them holds.
    """
    filled = np.flatnonzero(bins)
    kept = bins[: int(filled[-1]) + 1] if filled.size else bins[:0]
    factor = 1 << max(0, math.ceil(math.log2(max(len(kept), 1) / most)))
    padded = np.pad(kept, (0, -len(kept) % factor))
    return padded.reshape(-1, factor).sum(axis=1), factor


def histogram(
    bins: NDArray[np.int64],
    width: float,
    thresholds: Sequence[Threshold],
    *,
    about: About,
    caption: str = "|x|",
    plot_height: float = 130,
    most: int = 128,
) -> str:
    """Draw counts of magnitudes (logarithmic) over magnitude (linear) with labelled thresholds.

    Args:
        bins: int64 counts, first bin at zero.
        width: width of a bin, above zero.
        thresholds: lines to draw, in any order; labels are stacked so that they do not overlap.
        about: id, title and description.
        caption: name of the magnitude axis.
        plot_height: height of the plot without labels, in pixels.
        most: bins to draw at most; neighbouring bins are summed.
    """
    counts, factor = coarsen(bins, most)
    reach = _reach(counts, factor * width, thresholds)
    rows = len(thresholds)
    frame = Frame(height=plot_height + 44 + rows * LABEL_ROW, top=10 + rows * LABEL_ROW, bottom=34, left=38)
    x = Axis(0.0, reach, frame.x0, frame.x1)
    y = _count_axis(counts, frame.y0, frame.y1)
    content = (
        _count_grid(frame, y)
        + _area(counts, factor * width, x, y, frame.y0)
        + x_axis(frame, x, nice_ticks(0.0, reach, 6), caption)
        + _lines(thresholds, frame, x)
    )
    return chart(about, frame, content, "histogram")


def sparkline(bins: NDArray[np.int64], width: float, thresholds: Sequence[Threshold], *, most: int = 48) -> str:
    """Draw the same histogram small and without labels, as decoration of a table row that has the numbers."""
    counts, factor = coarsen(bins, most)
    frame = Frame(132, 30, 2, 1, 1, 1)
    x = Axis(0.0, _reach(counts, factor * width, thresholds), frame.x0, frame.x1)
    y = _count_axis(counts, frame.y0, frame.y1)
    marks = "".join(_line(x(line.value), frame.y0, frame.y1, line.style) for line in thresholds)
    base = segment(frame.x0, frame.y0, frame.x1, frame.y0, "ax")
    return decoration(frame, _area(counts, factor * width, x, y, frame.y0) + base + marks, "spark")


def _reach(counts: NDArray[np.int64], width: float, thresholds: Sequence[Threshold]) -> float:
    return max([len(counts) * width, *(line.value for line in thresholds)]) or width


def _count_axis(counts: NDArray[np.int64], start: float, end: float) -> Axis:
    most = float(counts.max()) if counts.size else 1.0
    return Axis(HALF_COUNT, max(most, 1.0) * 1.15, start, end, log=True)


def _count_grid(frame: Frame, y: Axis) -> str:
    decades = int(math.log10(max(y.high, 1.0)))
    step = max(1, math.ceil(decades / 4))
    ticks = [10.0**power for power in range(0, decades + 1, step)]
    return y_axis(frame, y, ticks, [power_text(int(math.log10(tick) + 0.5)) for tick in ticks])


def _area(counts: NDArray[np.int64], width: float, x: Axis, y: Axis, base: float) -> str:
    if not counts.size:
        return ""
    steps = [f"M{coordinate(x(0.0))} {coordinate(base)}"]
    for index, value in enumerate(counts.tolist()):
        steps.append(f"V{coordinate(y(value))}H{coordinate(x((index + 1) * width))}")
    return element("path", d="".join(steps) + f"V{coordinate(base)}Z", class_="area")


def _line(x: float, y0: float, y1: float, style: int) -> str:
    return segment(x, y0, x, y1, f"th {series(style)}")


def _lines(thresholds: Sequence[Threshold], frame: Frame, x: Axis) -> str:
    """Draw all lines, then the labels over them; each label has a row of its own.

    Labels that fit go right of their line and take the lower rows, the rightmost lowest; those that fit left of
    theirs take the rows above, the leftmost lowest: so no line runs through a label of its own group. What fits on
    neither side is centred over its line, as far as the frame allows, on top.
    """
    placed = sorted(((x(line.value), line) for line in thresholds), key=lambda item: (item[0], item[1].style))
    sides = [(_side(place, _caption(line, frame), frame), place, line) for place, line in placed]
    rows = [item for item in reversed(sides) if item[0] == "right"]
    rows += [item for item in sides if item[0] == "left"] + [item for item in sides if item[0] == "over"]
    marks, labels = [], []
    for row, (side, place, line) in enumerate(rows):
        y = frame.y1 - 6 - row * LABEL_ROW
        marks.append(_line(place, frame.y0, y + 3 if side == "over" else y - 5, line.style))
        labels.append(_threshold_label(side, place, y, _caption(line, frame), frame))
    return "".join(marks + labels)


def _caption(line: Threshold, frame: Frame) -> str:
    return shorten(line.caption, frame.width - 40)


def _side(place: float, caption: str, frame: Frame) -> Side:
    if place + GAP + text_width(caption) <= frame.width:
        return "right"
    return "left" if place - GAP - text_width(caption) >= 0 else "over"


def _threshold_label(side: Side, place: float, y: float, caption: str, frame: Frame) -> str:
    if side == "right":
        return label(place + GAP, y, caption, "halo")
    if side == "left":
        return label(place - GAP, y, caption, "halo", "end")
    half = text_width(caption) / 2
    return label(min(max(place, half), frame.width - half), y, caption, "halo", "middle")
