"""One stacked bar: how a whole divides into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from calib.edges.report.svg.canvas import CHARACTER, About, Axis, Frame, chart, element, label, text_of


@dataclass(frozen=True)
class Part:
    """A part of the whole: its name, its amount (at least 0) and the class that paints it."""

    name: str
    amount: float
    tone: str


def stacked_shares(parts: Sequence[Part], *, about: About, width: float = 720) -> str:
    """Draw one horizontal bar divided by amount; each part wide enough carries its amount.

    Args:
        parts: in order; amounts at least zero, parts of zero are left out.
        about: id, title and description.
        width: natural width in pixels.
    """
    frame = Frame(width, 30, 0, 0, 0, 0)
    total = sum(part.amount for part in parts)
    x = Axis(0.0, total or 1.0, 0.0, width)
    content, start = [], 0.0
    for part in filter(lambda part: part.amount > 0, parts):
        content.append(_block(part, x(start), x(start + part.amount)))
        start += part.amount
    return chart(about, frame, "".join(content), "shares")


def _block(part: Part, left: float, right: float) -> str:
    wide = max(right - left - 1.5, 0.5)
    name = element("title", text_of(f"{part.name}: {part.amount:g}"))
    block = element("rect", name, x=left, y=0.0, width=wide, height=30.0, rx=2.0, class_=f"part {part.tone}")
    text = f"{part.amount:g}"
    if wide < len(text) * CHARACTER + 12:
        return block
    return block + label(left + 8, 19.5, text, f"on-{part.tone}")
