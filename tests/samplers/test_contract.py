"""What every registered sampler must do; a new one is covered by its registry line."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.scoretable import take_rows
from samplers import SAMPLERS
from tests.scoretables import make_table

EXTRA = {"mix": {"dark-regions": 0.3, "small-objects": 0.3, "random": 0.4}}


def run(name, table, n, seed=0):
    return SAMPLERS[name](table, n, np.random.default_rng(seed), **EXTRA.get(name, {}))


def chosen_keys(table, selection):
    return [table.keys[row] for row in selection.rows]


def check(table, selection, n):
    expected = min(n, len(table))
    assert selection.rows.dtype == np.int64
    assert selection.scores.dtype == np.float64
    assert len(selection.rows) == len(selection.scores) == len(selection.samplers) == expected
    assert len(set(selection.rows.tolist())) == expected
    assert np.isfinite(selection.scores).all()
    assert all(0 <= row < len(table) for row in selection.rows)


every_sampler = pytest.mark.parametrize("name", SAMPLERS)


@every_sampler
@pytest.mark.parametrize("n", [1, 2, 7, 25, 40])
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "no labels"])
def test_size_is_exact_and_rows_unique(name, n, labels):
    table = make_table(40, labels=labels)
    check(table, run(name, table, n), n)


@every_sampler
def test_asking_for_more_than_there_are_takes_all_and_says_so(name):
    table = make_table(12)
    selection = run(name, table, 30)
    check(table, selection, 30)
    assert any("30" in note and "12" in note for note in selection.notes)


@every_sampler
def test_same_seed_same_answer(name):
    table = make_table(60)
    first, second = run(name, table, 20, 5), run(name, table, 20, 5)
    assert first.rows.tolist() == second.rows.tolist()
    assert first.scores.tolist() == second.scores.tolist()
    assert first.notes == second.notes


@every_sampler
@pytest.mark.parametrize("labels", [True, False], ids=["labels", "no labels"])
def test_row_order_does_not_matter(name, labels):
    table = make_table(50, labels=labels)
    order = np.random.default_rng(3).permutation(50)
    shuffled = take_rows(table, order)
    assert chosen_keys(table, run(name, table, 17)) == chosen_keys(shuffled, run(name, shuffled, 17))


@every_sampler
def test_one_image(name):
    table = make_table(1)
    check(table, run(name, table, 1), 1)


@every_sampler
def test_identical_images_fill_up_to_the_size(name):
    table = take_rows(make_table(1), np.zeros(9, int))
    table = type(table)(tuple(f"{row}.jpg" for row in range(9)), table.columns, table.class_names, table.thresholds)
    selection = run(name, table, 6)
    check(table, selection, 6)
    assert any("copies" in note for note in selection.notes)


@every_sampler
def test_near_duplicates_come_last(name):
    table = make_table(30)
    hashes, light = table.columns["phash"].copy(), table.columns["luma_mean"].copy()
    hashes[10:20], light[10:20] = hashes[10] ^ (np.uint64(1) << np.arange(10, dtype=np.uint64)), light[10]
    table = make_table(30, phash=hashes, luma_mean=light)
    selection = run(name, table, 21)
    check(table, selection, 21)
    assert sum(10 <= row < 20 for row in selection.rows) == 1
    assert any("near-duplicates" in note for note in selection.notes)
    check(table, run(name, table, 28), 28)


@every_sampler
def test_flat_images_come_last(name):
    flatness = np.where(np.arange(30) < 10, 1.0, 0.2).astype(np.float32)
    table = make_table(30, flatness=flatness)
    selection = run(name, table, 20)
    check(table, selection, 20)
    assert min(selection.rows) >= 10
    assert any("10 flat images" in note and "left out" in note for note in selection.notes)
    check(table, run(name, table, 25), 25)
    check(table, run(name, make_table(8, flatness=np.ones(8, np.float32)), 5), 5)


@every_sampler
def test_columns_full_of_nan_never_crash(name):
    table = make_table(20)
    ruined = {key: np.full_like(value, np.nan) for key, value in table.columns.items() if value.dtype.kind == "f"}
    broken = make_table(20, **ruined)
    check(broken, run(name, broken, 8), 8)


@every_sampler
def test_some_images_without_label(name):
    table = make_table(20)
    part = {}
    for key in ("class_share", "class_dark_share", "class_small_share", "small_share", "boundary_density"):
        part[key] = table.columns[key].copy()
        part[key][::2] = np.nan
    mixed = make_table(20, **part)
    check(mixed, run(name, mixed, 12), 12)


@every_sampler
def test_constant_scores_never_crash(name):
    table = make_table(20)
    level = {key: np.ones_like(value) * value[0] for key, value in table.columns.items() if value.dtype.kind == "f"}
    constant = make_table(20, **level)
    check(constant, run(name, constant, 9), 9)


@every_sampler
def test_input_is_left_alone(name):
    table = make_table(25)
    before = {key: value.copy() for key, value in table.columns.items()}
    run(name, table, 10)
    for key, value in table.columns.items():
        np.testing.assert_array_equal(value, before[key])


@every_sampler
def test_an_empty_request_is_empty(name):
    assert len(run(name, make_table(5), 0).rows) == 0
