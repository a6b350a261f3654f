"""What each sampler is for."""

from __future__ import annotations

import numpy as np
import pytest

from calib.errors import UsageError
from samplers import SAMPLERS
from samplers.coverage import cover_greedily, make_cells
from samplers.picking import enriched_size, hilbert, pick_best, rank, share_out, spread
from samplers.small_objects import class_weights
from samplers.stratified import make_strata
from tests.scoretables import make_table


def run(name, table, n, seed=0, **parameters):
    return SAMPLERS[name](table, n, np.random.default_rng(seed), **parameters)


def night_and_day(dark=20, images=100, labels=False):
    """A table whose first rows are dark, the others not at all."""
    rows = np.arange(images)
    share = np.where(rows < dark, 0.5 + rows / 1000, 0.01).astype(np.float32)
    light = np.where(rows < dark, 30.0, 140.0).astype(np.float32) + rows / 10
    inside = np.repeat(share[:, None], 5, axis=1)
    extra = {"class_dark_share": inside} if labels else {}
    return make_table(images, labels=labels, dark_share=share, luma_mean=light.astype(np.float32), **extra)


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("fraction", [0.0, 0.4, 1.0])
def test_dark_regions_enriches_the_share_it_was_asked_for(fraction, labels):
    table = night_and_day(labels=labels)
    selection = run("dark-regions", table, 20, fraction=fraction, diversity=0.0)
    dark = sum(row < 20 for row in selection.rows)
    least = round(20 * fraction)
    assert least <= dark <= least + (20 - least) * 0.5
    assert not any("dark images found" in note for note in selection.notes)


def test_dark_regions_says_how_many_it_found():
    selection = run("dark-regions", night_and_day(dark=3), 20, fraction=0.5)
    note = next(note for note in selection.notes if "dark images found" in note)
    assert note.startswith("3 dark images found (at least 33% of the pixels with luma below 32), 10 wanted")
    assert {0, 1, 2} <= set(selection.rows.tolist())


def test_dark_regions_without_dark_images_takes_the_darkest():
    table = make_table(30, labels=False, dark_share=np.zeros(30, np.float32))
    selection = run("dark-regions", table, 5, fraction=1.0, diversity=0.0)
    darkest = np.argsort(table.columns["luma_mean"])[:5]
    assert set(selection.rows.tolist()) == set(darkest.tolist())
    assert any(note.startswith("0 dark images found") for note in selection.notes)


def test_a_dark_border_outside_the_labels_does_not_make_an_image_dark():
    dark = np.full(10, 0.4, np.float32)
    inside = np.zeros((10, 5), np.float32)
    inside[4] = 0.4
    selection = run("dark-regions", make_table(10, dark_share=dark, class_dark_share=inside), 1, fraction=1.0)
    assert selection.rows.tolist() == [4]


def test_small_objects_weighs_classes_by_how_small_they_are():
    table = make_table(40)
    weights = dict(zip(table.class_names, class_weights(table), strict=True))
    assert min(weights["Pole"], weights["Person"]) > 5 * max(weights["Road"], weights["Building"], weights["Sky"])


def test_small_objects_prefers_poles_to_slivers_of_sky():
    counts = np.zeros((20, 5), np.int32)
    counts[:10, 2], counts[10:, 3] = 30, 10
    small = np.zeros((20, 5), np.float32)
    small[:10, 2], small[10:, 3] = 0.004, 0.008
    share = np.tile(np.array([0.4, 0.2, 0.38, 0.01, 0.01], np.float32), (20, 1))
    table = make_table(20, class_small_count=counts, class_small_share=small, class_share=share)
    selection = run("small-objects", table, 8, fraction=1.0, diversity=0.0)
    assert min(selection.rows) >= 10


def test_small_objects_without_labels_goes_by_detail_and_says_so():
    table = make_table(20, labels=False)
    selection = run("small-objects", table, 3, fraction=1.0, diversity=0.0)
    assert set(selection.rows.tolist()) == set(np.argsort(-table.columns["edge_density"])[:3].tolist())
    assert "no labels: edge density stands for small objects" in selection.notes


def test_edge_heavy_takes_many_edges():
    table = make_table(60)
    selection = run("edge-heavy", table, 10, fraction=1.0)
    both = rank(table.columns["edge_density"]) + rank(table.columns["boundary_density"])
    assert both[selection.rows].mean() > np.quantile(both, 0.8)


def test_class_balanced_keeps_the_floor_of_rare_classes():
    share = np.tile(np.array([0.5, 0.3, 0.2, 0.0, 0.0], np.float32), (100, 1))
    share[:6, 3], share[50:52, 4] = 0.02, 0.01
    table = make_table(100, class_share=share)
    selection = run("class-balanced", table, 20, floor=0.25)
    chosen = set(selection.rows.tolist())
    assert len(chosen & set(range(6))) >= 5
    assert {50, 51} <= chosen
    assert any("Person 2" in note and "Pole" not in note for note in selection.notes)


def test_stratified_is_proportional():
    groups = np.array(["a"] * 60 + ["b"] * 30 + ["c"] * 10)
    table = make_table(100, group=groups)
    selection = run("stratified", table, 20, bins=1)
    found = [groups[selection.rows].tolist().count(name) for name in "abc"]
    assert found == [12, 6, 2]
    assert len(np.unique(make_strata(table, 4, "scale"))) == 16


def test_diverse_reaches_every_cluster():
    place = np.repeat(np.arange(5), 20)
    values = {
        name: (place * 37 % 5 / 5 + np.random.default_rng(1).normal(0, 0.001, 100)).astype(np.float32)
        for name in ("luma_mean", "dark_share", "contrast", "edge_density", "sharpness", "bright_share")
    }
    table = make_table(100, labels=False, **values)
    assert len(set(place[run("diverse", table, 5).rows])) == 5


def test_coverage_shows_more_cells_than_random():
    table = make_table(200, seed=4)
    cells = make_cells(table, 4)
    covered = {name: len(np.unique(cells[run(name, table, 12).rows])) for name in ("coverage", "random", "stratified")}
    assert covered["coverage"] >= 1.1 * max(covered["random"], covered["stratified"])


def test_greedy_cover_takes_the_widest_first():
    cells = np.array([[0, -1, -1], [0, 1, -1], [2, -1, -1], [0, 1, 2]])
    rows, gains = cover_greedily(cells, 4)
    assert rows.tolist()[0] == 3
    assert gains[0] == 3
    assert (np.diff(gains) <= 1e-12).all()


def test_mix_gives_every_sampler_its_share():
    table = night_and_day()
    shares = {"dark-regions": 0.3, "edge-heavy": 0.3, "random": 0.4}
    selection = run("mix", table, 20, **shares)
    assert [selection.samplers.count(name) for name in shares] == [6, 6, 8]
    first = selection.samplers[:10]
    assert [first.count(name) for name in shares] == [3, 3, 4]
    dark = [row < 20 for row, name in zip(selection.rows, selection.samplers, strict=True) if name == "dark-regions"]
    assert all(dark)


@pytest.mark.parametrize("shares", [{}, {"random": 0.0}, {"dark": 1.0}, {"mix": 1.0}])
def test_mix_refuses_what_it_cannot_mix(shares):
    with pytest.raises(UsageError):
        run("mix", make_table(10), 5, **shares)


def test_a_burst_of_video_is_thinned_out():
    """Thirty frames of the darkest second: alike, yet not near-duplicates."""
    table = night_and_day(dark=60)
    rng = np.random.default_rng(0)
    hashes = rng.integers(0, 2**63, 100, dtype=np.uint64)
    for row in range(31, 60):
        flipped = sum(1 << int(bit) for bit in rng.permutation(64)[:5])
        hashes[row] = hashes[30] ^ np.uint64(flipped)
    share = table.columns["dark_share"].copy()
    share[30:60] += 0.05
    table = make_table(100, labels=False, dark_share=share, luma_mean=table.columns["luma_mean"], phash=hashes)
    burst = {
        diversity: sum(30 <= row < 60 for row in run("dark-regions", table, 20, fraction=1.0, diversity=diversity).rows)
        for diversity in (0.0, 1.0)
    }
    assert burst[0.0] == 20
    assert burst[1.0] <= 12
    assert all(row < 60 for row in run("dark-regions", table, 20, fraction=1.0, diversity=1.0).rows)


def test_variety_never_leaves_the_best():
    table = make_table(200)
    scores = np.random.default_rng(0).random(200)
    picked = pick_best(table, scores, 40, 0.25)
    assert set(picked.tolist()) <= set(np.argsort(-scores)[:50].tolist())


def test_spread_represents_the_population_better_than_chance():
    table = make_table(500, labels=False)
    light = table.columns["luma_mean"]
    edges = np.quantile(light, np.linspace(0, 1, 11))

    def worst(rows):
        return np.abs(np.histogram(light[rows], edges)[0] / len(rows) - 0.1).max()

    ours = [worst(spread(table, 50, np.random.default_rng(seed)).rows) for seed in range(10)]
    chance = [worst(np.random.default_rng(seed).permutation(500)[:50]) for seed in range(10)]
    assert np.mean(ours) < 0.7 * np.mean(chance)


def test_spread_takes_every_row_once():
    table = make_table(37)
    assert sorted(spread(table, 37, np.random.default_rng(0)).rows.tolist()) == list(range(37))


def test_the_curve_visits_neighbours():
    side = 256
    y, x = np.mgrid[:side, :side]
    place = hilbert(x.reshape(-1) / side, y.reshape(-1) / side)
    assert sorted(place.tolist()) == list(range(side * side))
    order = np.argsort(place)
    steps = np.abs(np.diff(x.reshape(-1)[order])) + np.abs(np.diff(y.reshape(-1)[order]))
    assert (steps == 1).all()


@pytest.mark.parametrize(("n", "fraction", "size"), [(10, 0.25, 3), (10, 0.0, 0), (10, 1.0, 10), (1, 0.5, 1)])
def test_enriched_size(n, fraction, size):
    assert enriched_size(n, fraction) == size


def test_share_out_is_exact():
    assert share_out(np.array([1, 1, 1]), 10).tolist() == [4, 3, 3]
    assert share_out(np.array([0.3, 0.3, 0.4]), 100).tolist() == [30, 30, 40]
    assert share_out(np.array([0, 5]), 3).tolist() == [0, 3]
