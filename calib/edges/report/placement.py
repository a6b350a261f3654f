"""The placement section: decisions counted by reason, and the tables behind them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from calib.edges.report import formatting, svg
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.model import Decision, PlacementSection

TONES = 5
"""Shades for the reasons; further reasons share the last."""
UNSTATED = "no reason given"


@dataclass(frozen=True)
class ReasonView:
    """A reason operators stayed float: how many, which operator types, and the shade in the bar."""

    reason: str
    tone: str
    count: int
    ops: str


@dataclass(frozen=True)
class PlacementView:
    """The section as shown."""

    section: PlacementSection
    quantized: int
    reasons: tuple[ReasonView, ...]
    shares: Figure
    uncovered: tuple[tuple[str, int, tuple[str, ...]], ...]


def placement_view(section: PlacementSection) -> PlacementView:
    """Count decisions by reason, the commonest first."""
    quantized = sum(item.quantized for item in section.decisions)
    reasons = _reasons(section.decisions)
    return PlacementView(section, quantized, reasons, _shares(quantized, reasons), _uncovered(section))


def _reasons(decisions: tuple[Decision, ...]) -> tuple[ReasonView, ...]:
    left = [item for item in decisions if not item.quantized]
    counted = Counter(item.reason or UNSTATED for item in left)
    ordered = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(
        ReasonView(reason, f"f{min(place, TONES - 1) + 1}", number, _ops(left, reason))
        for place, (reason, number) in enumerate(ordered)
    )


def _ops(left: list[Decision], reason: str) -> str:
    counted = Counter(item.op for item in left if (item.reason or UNSTATED) == reason)
    return ", ".join(f"{op} {number}" for op, number in sorted(counted.items(), key=lambda item: (-item[1], item[0])))


def _shares(quantized: int, reasons: tuple[ReasonView, ...]) -> Figure:
    parts = [
        svg.Part("quantized", quantized, "q"),
        *(svg.Part(view.reason, view.count, view.tone) for view in reasons),
    ]
    words = ", ".join(f"{part.name}: {part.amount:g}" for part in parts)
    drawn = [
        svg.stacked_shares(parts, about=svg.About(f"placement-{name}", "Operators by decision", words), width=width)
        for name, width in (("wide", 1040.0), ("narrow", 340.0))
    ]
    rows = tuple((part.name, formatting.count(int(part.amount))) for part in parts)
    return Figure("Operators by decision", drawn[0], DataTable("", ("decision", "operators"), rows), narrow=drawn[1])


def _uncovered(section: PlacementSection) -> tuple[tuple[str, int, tuple[str, ...]], ...]:
    by_reason: dict[str, list[str]] = {}
    for name, reason in section.uncovered.items():
        by_reason.setdefault(reason or UNSTATED, []).append(name)
    return tuple((reason, len(names), tuple(names)) for reason, names in by_reason.items())
