"""Words and numbers of the evaluation report: the verdict, points, intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calib.edges.report.formatting import MISSING, plural
from calib.edges.report.model import Level

Json = Mapping[str, Any]


def reference_of(document: Json) -> Json | None:
    """The reference network's results, or None."""
    return next((model for model in document["models"] if model["name"] == document["reference"]), None)


def candidates(document: Json) -> list[Json]:
    """The networks that are compared with a reference; none without one."""
    if document["reference"] is None:
        return []
    return [model for model in document["models"] if model["name"] != document["reference"]]


def chosen_first(document: Json) -> list[Json]:
    """The compared networks, the chosen variant first."""
    best = document["best_variant"]
    return sorted(candidates(document), key=lambda model: best is None or model["name"] != best["name"])


def by_chance(document: Json) -> str:
    """Say how many differences of classes would be marked if nothing had changed."""
    count = len(document["data"]["classes"]) * len(candidates(document))
    return f"Of {count} differences, about {max(1, round(count * 0.05))} would be marked by chance alone."


def percent(value: float | None, digits: int = 2) -> str:
    """Write an IoU or share 0..1 as percent without the sign."""
    return MISSING if value is None else f"{100 * value:.{digits}f}"


def points(value: float | None, digits: int = 2) -> str:
    """Write a difference in points with its sign; what rounds to nothing is ``0.00``."""
    if value is None:
        return MISSING
    text = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(text) == 0 else text.replace("-", "−")


def lost(value: float | None) -> str:
    """Write a loss in points, a gain with a minus sign."""
    return MISSING if value is None else f"{value:.2f}".replace("-0.00", "0.00").replace("-", "−")


def interval(ci95: Sequence[float] | None) -> str:
    """Write an interval in points."""
    return "too few images" if ci95 is None else f"{points(ci95[0])} to {points(ci95[1])}"


def verdict_of(document: Json) -> tuple[Level | None, str, str]:
    """What to tell first: a level (None when all is well), a short verdict, and a sentence of detail."""
    if document["gate"]:
        return _gate_verdict(document["gate"])
    others = candidates(document)
    if not others:
        first = document["models"][0]
        return None, f"{percent(first['miou'])} % mIoU", "No reference was given, so no difference is measured."
    losers = [model for model in others if _loses(model)]
    shown = _named(document, others)
    entry = shown["vs_reference"]["miou"]
    where = f"{shown['name']} against {document['reference']}: {points(entry['delta'])} points of mIoU"
    detail = f"{where}, 95 % interval {interval(entry['ci95'])}; {_worst_words(shown)}"
    if not losers:
        return None, "No significant loss of mIoU", detail
    if len(losers) == len(others):
        words = "A significant loss of mIoU" if len(others) == 1 else "Every network loses mIoU significantly"
        return "warning", words, detail
    return "warning", f"{plural(len(losers), 'network')} of {len(others)} lose mIoU significantly", detail


def _gate_verdict(gate: Sequence[Json]) -> tuple[Level | None, str, str]:
    failed = [clause for clause in gate if not clause["passed"]]
    open_ = [clause for clause in gate if clause["passed"] and clause["reason"]]
    if failed:
        first = failed[0]
        drop = "cannot be judged" if first["drop"] is None else f"loses {first['drop']:.2f} points"
        words = f"Gate failed: {len(failed)} of {plural(len(gate), 'limit')} broken"
        return "error", words, f"First: {first['model']} {drop}, limit {first['limit']}."
    detail = f"{plural(len(open_), 'interval')} reach beyond the limit." if open_ else "No interval reaches a limit."
    return ("warning" if open_ else None), f"Gate passed: {plural(len(gate), 'limit')} hold", detail


def _named(document: Json, others: Sequence[Json]) -> Json:
    """The network to speak of: the chosen variant, else the one that loses least."""
    best = document["best_variant"]
    name = best["name"] if best else max(others, key=_delta)["name"]
    return next(model for model in others if model["name"] == name)


def _loses(model: Json) -> bool:
    entry = model["vs_reference"]["miou"]
    return bool(entry["significant"] and entry["delta"] is not None and entry["delta"] < 0)


def _delta(model: Json) -> float:
    delta = model["vs_reference"]["miou"]["delta"]
    return float("-inf") if delta is None else float(delta)


def _worst_words(model: Json) -> str:
    """Name the class and the slice that lose most."""
    against = model["vs_reference"]
    parts = []
    for kind, found in (("class", against["per_class"]), ("slice", against["slices"])):
        known = {name: entry["delta"] for name, entry in found.items() if entry and entry["delta"] is not None}
        if known:
            worst = min(known, key=lambda name: known[name])
            parts.append(f"worst {kind} {worst} {points(known[worst])}")
    return ", ".join(parts) + "."
