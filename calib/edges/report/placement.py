"""The placement section: decisions counted by status and reason, and the tables behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calib.edges.report import formatting, svg
from calib.edges.report.figures import DataTable, Figure
from calib.edges.report.model import Decision, PlacementSection, Status

TONES = 5
"""Shades for the reasons to stay float; further reasons share the last."""
UNSTATED = "no reason given"
NAMES: Mapping[Status, str] = {
    "int8": "INT8",
    "fused": "fused into an INT8 layer",
    "follows": "follows its neighbours",
    "float": "float",
}
BUSY: tuple[tuple[Status, str], ...] = (("int8", "q"), ("fused", "q2"), ("follows", "q3"))
"""Every status but float, and its shade in the bar."""


@dataclass(frozen=True)
class DecisionGroup:
    """Operators with one decision: what it is, the shade in the bar, how many, and which operator types."""

    name: str
    tone: str
    count: int
    ops: str


@dataclass(frozen=True)
class PlacementView:
    """The section as shown.

    Attributes:
        section: what was given.
        quantized: operators that compute in INT8, fused ones included.
        groups: INT8, fused and following operators, then the float ones by reason, commonest first.
        shares: the same as a bar.
        missing: reason to names of tensors without cache entry.
        exempt: reason to names of tensors that need none.
        names: status to words.
    """

    section: PlacementSection
    quantized: int
    groups: tuple[DecisionGroup, ...]
    shares: Figure
    missing: Mapping[str, list[str]]
    exempt: Mapping[str, list[str]]
    names: Mapping[Status, str]


def placement_view(section: PlacementSection) -> PlacementView:
    """Count decisions and sort names by reason."""
    groups = tuple(_groups(section.decisions))
    quantized = sum(item.status in ("int8", "fused") for item in section.decisions)
    missing, exempt = by_reason(section.missing), by_reason(section.exempt)
    return PlacementView(section, quantized, groups, _shares(groups), missing, exempt, NAMES)


def by_reason(reasons: Mapping[str, str]) -> dict[str, list[str]]:
    """Turn name-to-reason around, the commonest reason first, names in their order."""
    found: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        found.setdefault(reason or UNSTATED, []).append(name)
    return dict(sorted(found.items(), key=lambda item: (-len(item[1]), item[0])))


def _groups(decisions: Sequence[Decision]) -> list[DecisionGroup]:
    made = [_group(NAMES[status], tone, [item for item in decisions if item.status == status]) for status, tone in BUSY]
    left = [item for item in decisions if item.status == "float"]
    reasons = Counter(item.reason or UNSTATED for item in left)
    for place, (reason, _) in enumerate(sorted(reasons.items(), key=lambda item: (-item[1], item[0]))):
        same = [item for item in left if (item.reason or UNSTATED) == reason]
        made.append(_group(f"float: {reason}", f"f{min(place, TONES - 1) + 1}", same))
    return [group for group in made if group.count]


def _group(name: str, tone: str, items: Sequence[Decision]) -> DecisionGroup:
    ops = sorted(Counter(item.op for item in items).items(), key=lambda item: (-item[1], item[0]))
    return DecisionGroup(name, tone, len(items), ", ".join(f"{op} {number}" for op, number in ops))


def _shares(groups: Sequence[DecisionGroup]) -> Figure:
    parts = [svg.Part(group.name, group.count, group.tone) for group in groups]
    words = ", ".join(f"{part.name}: {part.amount:g}" for part in parts)
    title = "Operators by decision"
    wide, narrow = (
        svg.stacked_shares(parts, about=svg.About(f"placement-{name}", title, words), width=width)
        for name, width in (("wide", 1040.0), ("narrow", 340.0))
    )
    rows = tuple((group.name, formatting.count(group.count), group.ops) for group in groups)
    return Figure(title, wide, DataTable(title, ("decision", "operators", "types"), rows), narrow=narrow)
