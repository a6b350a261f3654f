"""Samplers: pure functions ``(ScoreTable, n, rng, **parameters) -> Selection``.

A new one is one module, one line below and one test.
"""

from __future__ import annotations

from collections.abc import Mapping

from calib.types.scores import Sampler

SAMPLERS: Mapping[str, Sampler] = {}
