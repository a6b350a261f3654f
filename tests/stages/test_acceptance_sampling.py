"""What the samplers achieve on CamVid's training split; the split itself limits the factors to 2.4 and 1.8."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.plugins import parse_spec
from calib.stages.sample import choose
from samplers import SAMPLERS

SMALL = ("Pole", "SignSymbol", "Pedestrian", "Bicyclist")


@pytest.mark.parametrize("seed", range(3))
def test_dark_regions_finds_the_dusk_sequence_by_pixels(camvid_tables, seed):
    table = camvid_tables[0]
    selection = choose(table, [parse_spec("dark-regions:fraction=1.0")], SAMPLERS, 50, seed)
    assert sum("0001TP_" in table.keys[row] for row in selection.rows) >= 45


@pytest.mark.parametrize("seed", range(3))
def test_small_objects_are_enriched(camvid_tables, seed):
    table = camvid_tables[0]
    chosen = choose(table, [parse_spec("small-objects:fraction=1.0")], SAMPLERS, 50, seed).rows
    drawn = np.concatenate([choose(table, [parse_spec("random")], SAMPLERS, 50, s).rows for s in range(20)])
    classes = [table.class_names.index(name) for name in SMALL]
    counts = table.columns["class_small_count"][:, classes].sum(axis=1)
    assert counts[chosen].mean() >= 1.5 * counts[drawn].mean()


def test_the_default_fraction_leaves_half_to_the_population(camvid_tables):
    table = camvid_tables[0]
    selection = choose(table, [parse_spec("dark-regions")], SAMPLERS, 100, 0)
    dark = sum("0001TP_" in table.keys[row] for row in selection.rows)
    assert 45 <= dark <= 62
