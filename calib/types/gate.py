"""What the release gate says of a build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

CheckStatus = Literal["pass", "fail", "skip", "note"]
ORDER: tuple[CheckStatus, ...] = ("fail", "note", "skip", "pass")


@dataclass(frozen=True)
class Check:
    """One thing that was looked at.

    Attributes:
        name: what of the build: ``model``, ``file minmax.cache``, ….
        status: ``pass``; ``fail``, which closes the gate; ``skip``, not looked at, and why; ``note``, worth knowing.
        detail: what was found.
        remedy: what to do about it; empty where nothing need be done.
    """

    name: str
    status: CheckStatus
    detail: str
    remedy: str = ""


def order_checks(checks: Sequence[Check]) -> tuple[Check, ...]:
    """Failing checks first, then notes, what was not looked at, and what passed; each in the order it was found."""
    return tuple(sorted(checks, key=lambda item: ORDER.index(item.status)))


def few(names: Sequence[str], limit: int = 4) -> str:
    """List the first names and count the rest."""
    shown = ", ".join(names[:limit])
    return shown if len(names) <= limit else f"{shown}, … ({len(names) - limit} more)"
