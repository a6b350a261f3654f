"""What all charts share: escaping, coordinates, scales, ticks, axes, the outer element."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from calib.edges.report.formatting import visible

SERIES_STYLES = 8
"""How many series styles the style sheet has; more series start over with the first."""
CHARACTER = 6.8
"""Mean advance of a character at 11.5 px in a wide face, for laying labels out without a font engine."""
GROWTH = 1.25
"""How far beyond its natural size a chart fills its place: text and bars keep about their size, however wide it is."""

_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class About:
    """What a chart is, for people who do not see it.

    Attributes:
        key: unique within the page, of letters, digits and ``-``; ids are made of it.
        title: short name.
        description: the content in words.
    """

    key: str
    title: str
    description: str


@dataclass(frozen=True)
class Frame:
    """Size of a chart and room around its plot, in user units (one CSS pixel at natural size)."""

    width: float = 360
    height: float = 200
    top: float = 12
    right: float = 12
    bottom: float = 30
    left: float = 40

    @property
    def x0(self) -> float:
        """Left end of the plot."""
        return self.left

    @property
    def x1(self) -> float:
        """Right end of the plot."""
        return self.width - self.right

    @property
    def y0(self) -> float:
        """Bottom of the plot."""
        return self.height - self.bottom

    @property
    def y1(self) -> float:
        """Top of the plot."""
        return self.top


@dataclass(frozen=True)
class Axis:
    """A scale from data to coordinates, linear or decimal-logarithmic, clamped to its ends."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Place a value; what lies outside the domain goes to its nearer end.

        Raises:
            ValueError: the value is not finite.
        """
        if not math.isfinite(value):
            raise ValueError(f"a chart was given {value} to place")
        low, high, value = (self._raw(item) for item in (self.low, self.high, value))
        part = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(max(part, 0.0), 1.0) * (self.end - self.start)

    def _raw(self, value: float) -> float:
        if not self.log:
            return value
        return math.log10(value) if value > 0 else -math.inf


def coordinate(value: float) -> str:
    """Write a coordinate with at most one decimal.

    Raises:
        ValueError: the value is not finite: a chart was given data it cannot place.
    """
    if not math.isfinite(value):
        raise ValueError(f"a chart coordinate is {value}")
    text = f"{value:.1f}"
    return "0" if text == "-0.0" else text.removesuffix(".0")


def text_of(value: str) -> str:
    """Escape text for element content and double-quoted attributes."""
    return escape(visible(value), {'"': "&quot;"})


def element(name: str, content: str = "", **attributes: float | str) -> str:
    """Write an element; floats become coordinates, ``_`` in attribute names ``-``, a trailing ``_`` is dropped.

    ``content`` must already be markup; attribute values are escaped here.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{value_text(value)}"' for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def value_text(value: float | str) -> str:
    """Write an attribute value."""
    return text_of(value) if isinstance(value, str) else coordinate(value)


def text_width(text: str) -> float:
    """Estimate the width of a label in pixels; East Asian wide characters count double."""
    return CHARACTER * sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def shorten(text: str, room: float) -> str:
    """Cut a label to fit ``room`` pixels, with an ellipsis; line breaks become spaces."""
    text = " ".join(visible(text).split())
    if text_width(text) <= room:
        return text
    while text and text_width(text) + CHARACTER > room:
        text = text[:-1]
    return f"{text}…"


def label(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    """Write a text label; ``style`` adds classes."""
    return element("text", text_of(text), x=x, y=y, class_=f"lb {style}".strip(), text_anchor=anchor)


def segment(x0: float, y0: float, x1: float, y1: float, style: str) -> str:
    """Draw a straight line."""
    return element("line", x1=x0, y1=y0, x2=x1, y2=y1, class_=style)


def path(points: Iterable[tuple[float, float]], style: str) -> str:
    """Draw an open polyline."""
    joined = "L".join(f"{coordinate(x)} {coordinate(y)}" for x, y in points)
    return element("path", d=f"M{joined}", class_=style) if joined else ""


def chart(about: About, frame: Frame, content: str, style: str = "") -> str:
    """Wrap a chart's content in its ``<svg>`` with title and description."""
    key = about.key
    head = element("title", text_of(about.title), id=f"{key}-t")
    head += element("desc", text_of(about.description), id=f"{key}-d")
    widest = f"max-width:{coordinate(frame.width * GROWTH)}px"
    return _svg(frame, head + content, style, role="img", aria_labelledby=f"{key}-t {key}-d", style=widest)


def decoration(frame: Frame, content: str, style: str) -> str:
    """Wrap a picture that repeats numbers standing beside it; assistive technology passes over it."""
    return _svg(frame, content, style, aria_hidden="true")


def _svg(frame: Frame, content: str, kind: str, **attributes: str) -> str:
    return element(
        "svg",
        content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {coordinate(frame.width)} {coordinate(frame.height)}",
        class_=f"chart {kind}".strip(),
        **attributes,
    )


def series(index: int) -> str:
    """Name the style class of the ``index``-th series."""
    return f"s{index % SERIES_STYLES + 1}"


def nice_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Choose at most ``most`` + 1 round numbers (steps of 1, 2, 5 times a power of ten) within ``[low, high]``."""
    span = high - low
    if not (span > 0 and math.isfinite(span)):
        return [low] if math.isfinite(low) else []
    step = 10.0 ** math.floor(math.log10(span / most))
    step *= next((factor for factor in (1, 2, 5) if span / (step * factor) <= most), 10)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{index * step:.12g}") for index in range(first, last + 1)]


def log_ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Choose powers of ten within ``[low, high]``, every one or every few; both ends must be above zero."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    return [float(f"1e{power}") for power in range(first, last + 1, step)]


def tick_text(value: float) -> str:
    """Write a tick: short, powers of ten far from one as ``1e6``, and a true minus sign."""
    if value < 0:
        return f"−{tick_text(-value)}"
    if value != 0 and (abs(value) >= 1e5 or abs(value) < 1e-3):
        mantissa, _, power = f"{value:.3g}".partition("e")
        return f"{mantissa}e{int(power)}" if power else mantissa
    return f"{value:.6g}"


def octave_ticks(low: float, high: float, most: int = 7) -> list[float]:
    """Choose powers of two within ``[low, high]``, every one or every few; both ends must be above zero."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    step = max(1, math.ceil((last - first + 1) / most))
    return [2.0**power for power in range(first, last + 1, step)]


def power_text(power: int) -> str:
    """Write a power of ten: 1, 10, 100, then 10³, 10⁴ and on."""
    return str(10**power) if power < 3 else "10" + str(power).translate(_SUPERSCRIPTS)


def x_axis(frame: Frame, axis: Axis, ticks: Sequence[float], caption: str) -> str:
    """Draw the baseline, tick labels and the caption below the plot."""
    parts = [segment(frame.x0, frame.y0, frame.x1, frame.y0, "ax")]
    for tick in ticks:
        x = axis(tick)
        parts.append(segment(x, frame.y0, x, frame.y0 + 3, "ax"))
        parts.append(label(x, frame.y0 + 14, tick_text(tick), "tk", _tick_anchor(frame, x)))
    if caption:
        parts.append(label(frame.x1, frame.height - 3, shorten(caption, frame.x1 - 4), "cap", "end"))
    return "".join(parts)


def _tick_anchor(frame: Frame, x: float) -> str:
    if x - frame.x0 < 1 and frame.left < 12:
        return "start"
    return "end" if frame.x1 - x < 1 and frame.right < 14 else "middle"


def with_room(frame: Frame, texts: Sequence[str]) -> Frame:
    """Widen the room left of the plot until tick labels fit."""
    needed = max(map(text_width, texts), default=0.0) + 10
    return frame if needed <= frame.left else replace(frame, left=needed)


def y_name(frame: Frame, text: str) -> str:
    """Write what the vertical axis measures, above the plot."""
    return label(2.0, 11.0, shorten(text, frame.width - 8), "cap")


def y_axis(frame: Frame, axis: Axis, ticks: Sequence[float], texts: Sequence[str] | None = None) -> str:
    """Draw horizontal grid lines with labels left of the plot."""
    parts = []
    for tick, text in zip(ticks, texts or [tick_text(tick) for tick in ticks], strict=True):
        y = axis(tick)
        parts.append(segment(frame.x0, y, frame.x1, y, "gr"))
        parts.append(label(frame.x0 - 6, y + 3.5, text, "tk", "end"))
    return "".join(parts)
