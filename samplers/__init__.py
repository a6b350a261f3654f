"""Samplers: pure functions ``(ScoreTable, n, rng, **parameters) -> Selection``.

A new one is one module, one line below and one test.
"""

from __future__ import annotations

from collections.abc import Mapping

from calib.types.scores import Sampler
from samplers.class_balanced import choose_class_balanced
from samplers.coverage import choose_coverage
from samplers.dark_regions import choose_dark_regions
from samplers.diverse import choose_diverse
from samplers.edge_heavy import choose_edge_heavy
from samplers.mix import make_mix
from samplers.random_draw import draw_randomly
from samplers.small_objects import choose_small_objects
from samplers.stratified import choose_stratified

SIMPLE: Mapping[str, Sampler] = {
    "random": draw_randomly,
    "stratified": choose_stratified,
    "dark-regions": choose_dark_regions,
    "small-objects": choose_small_objects,
    "edge-heavy": choose_edge_heavy,
    "class-balanced": choose_class_balanced,
    "diverse": choose_diverse,
    "coverage": choose_coverage,
}

SAMPLERS: Mapping[str, Sampler] = {**SIMPLE, "mix": make_mix(SIMPLE)}
