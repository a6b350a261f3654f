"""The gate: how many IoU points a network may lose against the reference, as a whole, in a class, in a slice."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from calib.errors import UsageError

EXAMPLE = "miou=0.3,class:Pedestrian=1.0,slice:dark=0.5"
Kind = Literal["miou", "class", "slice"]
# class and slice names hold commas and equals signs, so a comma separates only before the next key
_SEPARATOR = re.compile(r",(?=\s*(?:miou\s*=|class:|slice:))")


@dataclass(frozen=True)
class Limit:
    """One clause: at most ``points`` IoU points (0..100) may be lost.

    Attributes:
        kind: what of.
        name: the class or the slice; empty for the mean.
        points: largest loss that passes, at least 0.
    """

    kind: Kind
    name: str
    points: float

    def __str__(self) -> str:
        """Render as the command line takes it."""
        return f"{self.kind}:{self.name}={self.points:g}" if self.name else f"{self.kind}={self.points:g}"


@dataclass(frozen=True)
class Verdict:
    """One clause, judged for one network.

    Attributes:
        model: the network.
        limit: the clause.
        drop: points lost against the reference (negative for a gain), or None where nothing can be said.
        ci95: interval of the drop, or None.
        passed: whether the clause holds.
        reason: why it cannot be judged, or what the interval adds; may be empty.
    """

    model: str
    limit: Limit
    drop: float | None
    ci95: tuple[float, float] | None
    passed: bool
    reason: str = ""


def parse_max_drop(text: str) -> tuple[Limit, ...]:
    """Parse ``miou=0.3,class:Pedestrian=1.0,slice:dark=0.5``.

    Raises:
        UsageError: the text is empty, a clause is malformed or given twice, or a number is not 0 or more.
    """
    clauses = [clause.strip() for clause in _SEPARATOR.split(text)]
    limits = tuple(_parse_clause(clause) for clause in clauses)
    seen = set()
    for limit in limits:
        if (limit.kind, limit.name) in seen:
            raise _wrong("each limit once", f"two for {limit.kind} {limit.name}".rstrip())
        seen.add((limit.kind, limit.name))
    return limits


def _parse_clause(clause: str) -> Limit:
    key, equals, number = clause.rpartition("=")
    key = key.strip()
    kind, _, name = key.partition(":")
    try:
        points = float(number)
    except ValueError:
        points = math.nan
    if not equals or not (math.isfinite(points) and points >= 0):
        raise _wrong("clauses KEY=POINTS with points of 0 or more", repr(clause))
    if key == "miou":
        return Limit("miou", "", points)
    if kind == "class" and name.strip():
        return Limit("class", name.strip(), points)
    if kind == "slice" and name.strip():
        return Limit("slice", name.strip(), points)
    raise _wrong("miou, class:NAME or slice:NAME before the =", repr(key))


def check_names(limits: Sequence[Limit], classes: Sequence[str], slices: Sequence[str]) -> None:
    """Refuse classes and slices that do not exist, before anything is computed.

    Raises:
        UsageError: with the names there are.
    """
    for limit in limits:
        known = classes if limit.kind == "class" else slices
        if limit.kind == "miou" or limit.name in known:
            continue
        close = difflib.get_close_matches(limit.name, known, n=1, cutoff=0.5)
        raise _wrong(
            f"a {limit.kind} of this evaluation: {', '.join(known[:24])}{', …' if len(known) > 24 else ''}",
            repr(limit.name),
            f"did you mean {close[0]!r}?" if close else "take one of them",
        )


def judge(
    model: str, limit: Limit, delta: float | None, ci95: tuple[float, float] | None, *, by_interval: bool = False
) -> Verdict:
    """Judge one clause.

    A difference that cannot be computed does not pass: a gate that saw nothing must not open.

    Args:
        model: the network.
        limit: the clause.
        delta: candidate minus reference in points, or None where the labels lack the class.
        ci95: interval of the delta, or None.
        by_interval: judge the far end of the interval in place of the value, so that only a proven pass passes.
    """
    if delta is None or not math.isfinite(delta):
        return Verdict(model, limit, None, None, False, "no labelled pixel in this split to judge it by")
    drop = -delta
    reach = None if ci95 is None else (-ci95[1], -ci95[0])
    if by_interval and reach is None:
        return Verdict(model, limit, drop, None, False, "too few images for an interval")
    worst = reach[1] if by_interval and reach is not None else drop
    passed = worst <= limit.points + 1e-9
    return Verdict(model, limit, drop, reach, passed, _doubt(limit, reach, passed))


def _doubt(limit: Limit, reach: tuple[float, float] | None, passed: bool) -> str:
    """Say where the interval leaves the verdict open."""
    if reach is None:
        return "too few images for an interval"
    if passed and reach[1] > limit.points:
        return "passes, but the interval reaches beyond the limit"
    if not passed and reach[0] <= limit.points:
        return "the interval does not rule out a pass"
    return ""


def order_verdicts(verdicts: Sequence[Verdict]) -> tuple[Verdict, ...]:
    """Failing clauses first, the furthest over its limit first; the others as they were."""

    def rank(verdict: Verdict) -> tuple[bool, float]:
        over = math.inf if verdict.drop is None else verdict.drop - verdict.limit.points
        return verdict.passed, 0.0 if verdict.passed else -over

    return tuple(sorted(verdicts, key=rank))


def _wrong(expected: str, got: str, remedy: str = f"write for example --max-drop {EXAMPLE}") -> UsageError:
    return UsageError("--max-drop", expected=expected, got=got, remedy=remedy)
