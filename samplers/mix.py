"""The ``mix`` sampler: shares of other samplers in one set without duplicates."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from calib.core.plugins import find_plugin
from calib.core.scoretable import take_rows
from calib.errors import UsageError
from calib.types.parameters import Parameter
from calib.types.scores import Sampler, ScoreTable, Selection
from samplers.picking import share_out
from samplers.pool import DEFAULT_DISTANCE, Picks, select


def make_mix(registry: Mapping[str, Sampler]) -> Sampler:
    """Make the ``mix`` sampler over a registry of others."""

    def mix(
        table: ScoreTable,
        n: int,
        rng: np.random.Generator,
        **shares: Annotated[float, Parameter("SAMPLER=SHARE; shares need not sum to 1", 0)],
    ) -> Selection:
        """Shares of other samplers: mix:dark-regions=0.3,small-objects=0.3,random=0.4; enriching ones enrich all."""
        chosen = _check_shares(shares, registry)

        def rule(candidates: ScoreTable, wanted: int, source: np.random.Generator) -> Picks:
            return _mix_parts(candidates, wanted, source, chosen, registry)

        return select("mix", table, n, rng, rule, DEFAULT_DISTANCE)

    return mix


def _check_shares(shares: Mapping[str, float], registry: Mapping[str, Sampler]) -> dict[str, float]:
    for name in shares:
        find_plugin("sampler", name, registry)
    wanted = {name: share for name, share in shares.items() if share > 0}
    if not wanted:
        raise UsageError(
            "sampler mix",
            expected="at least one sampler with a share above 0",
            got=", ".join(f"{name}={share:g}" for name, share in shares.items()) or "none",
            remedy="write mix:dark-regions=0.3,small-objects=0.3,random=0.4",
        )
    return wanted


def _mix_parts(
    table: ScoreTable, n: int, rng: np.random.Generator, shares: Mapping[str, float], registry: Mapping[str, Sampler]
) -> Picks:
    """Let each sampler choose its part from what the others have left, then interleave the parts.

    Enriching samplers choose first, those without a preference last, so that the latter take nothing from the former.
    """
    sizes = dict(zip(shares, share_out(np.array(list(shares.values())), n), strict=True))
    free = np.ones(len(table), bool)
    parts: list[tuple[float, int, int, float, str]] = []
    notes: list[str] = []
    for place, name in enumerate(sorted(shares, key=lambda name: (not _enriches(registry[name]), name))):
        rows = np.flatnonzero(free)
        extra: dict[str, Any] = {"fraction": 1.0} if _enriches(registry[name]) else {}
        part = registry[name](take_rows(table, rows), int(sizes[name]), rng, **extra)
        chosen = rows[part.rows]
        free[chosen] = False
        notes += [f"{name}: {note}" for note in part.notes]
        for turn, (row, score) in enumerate(zip(chosen, part.scores, strict=True)):
            parts.append(((turn + 0.5) / len(chosen), place, int(row), float(score), name))
    parts.sort()
    return Picks(
        np.array([part[2] for part in parts], np.int64),
        np.array([part[3] for part in parts]),
        tuple(notes),
        tuple(part[4] for part in parts),
    )


def _enriches(sampler: Sampler) -> bool:
    return "fraction" in inspect.signature(sampler).parameters
