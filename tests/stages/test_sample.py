"""Choosing, shared images and distributions."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calib.core.plugins import parse_spec
from calib.core.scoretable import take_rows
from calib.errors import LeakError, UsageError
from calib.stages.sample import choose, distribution, refuse_shared, shared_images
from calib.types.scores import Selection
from samplers import SAMPLERS
from tests.scoretables import make_table


def chosen(table, *specs, n=20, seed=0, registry=SAMPLERS):
    return choose(table, [parse_spec(spec) for spec in specs], registry, n, seed)


def test_several_samplers_share_the_images():
    selection = chosen(make_table(60), "random", "edge-heavy:fraction=1.0", "coverage", n=20)
    assert [selection.samplers.count(name) for name in ("random", "edge-heavy", "coverage")] == [7, 7, 6]
    assert len(set(selection.rows.tolist())) == 20
    assert sorted(selection.samplers[:3]) == ["coverage", "edge-heavy", "random"]


def test_several_samplers_do_not_run_out_early():
    selection = chosen(make_table(10), "random", "coverage", n=16)
    assert len(set(selection.rows.tolist())) == 10


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        ("dark", "dark-regions"),
        ("dark-regions:fraction=2", "from 0 to 1"),
        ("random:fraction=1", "parameters"),
        ("mix:nothing=1", "nothing"),
        ("mix", "share"),
    ],
)
def test_bad_specs_say_what_is_wrong(spec, word):
    with pytest.raises(UsageError, match=word):
        chosen(make_table(5), spec)


def test_another_seed_is_another_answer():
    table = make_table(100)
    assert chosen(table, "random", seed=1).rows.tolist() != chosen(table, "random", seed=2).rows.tolist()


@pytest.mark.parametrize("rows", [[0, 0, 1], [0, 1], [0, 1, 99], [-1, 0, 1]])
def test_a_sampler_from_outside_is_held_to_the_contract(rows):
    def broken(table, n, rng):
        del table, n, rng
        return Selection(np.array(rows, np.int64), np.ones(len(rows)), ("broken",) * len(rows))

    with pytest.raises(UsageError, match="at fault"):
        chosen(make_table(10), "broken", n=3, registry={"broken": broken})


def test_same_files_are_shared_whatever_their_names():
    table = make_table(10)
    other = take_rows(make_table(10, seed=9), np.arange(10))
    digests = np.array(other.columns["sha256"])
    digests[4] = table.columns["sha256"][7]
    other = type(table)(other.keys, {**other.columns, "sha256": digests}, other.class_names, other.thresholds)
    pairs = shared_images(table, other)
    assert [(pair.first, pair.second, pair.identical) for pair in pairs] == [
        ("images/0007.jpg", "images/0004.jpg", True)
    ]


def copy_of(table, row, bits, change):
    """Another table whose row 3 resembles a row of ``table``."""
    other = make_table(10, seed=9)
    hashes, thumbs = other.columns["phash"].copy(), other.columns["thumbnail"].copy()
    hashes[3] = table.columns["phash"][row] ^ np.uint64((1 << bits) - 1)
    thumbs[3] = np.clip(table.columns["thumbnail"][row].astype(int) + change, 0, 255)
    return make_table(10, seed=9, phash=hashes, thumbnail=thumbs)


def test_a_copy_needs_hash_and_thumbnail():
    table = make_table(10)
    pattern = np.where(np.arange(256) % 2, 40, -40)
    assert len(shared_images(table, copy_of(table, 5, 3, 1))) == 1
    assert not shared_images(table, copy_of(table, 5, 3, pattern))
    assert not shared_images(table, copy_of(table, 5, 9, 1))
    assert len(shared_images(table, copy_of(table, 5, 9, 1), max_distance=9)) == 1


def test_flat_images_are_compared_by_file_alone():
    flat = make_table(6, flatness=np.ones(6, np.float32), phash=np.zeros(6, np.uint64))
    others = make_table(6, seed=2, flatness=np.ones(6, np.float32), phash=np.zeros(6, np.uint64))
    assert shared_images(flat, others) == []
    assert len(shared_images(flat, flat)) == 6


def test_shared_images_are_an_error_that_names_them():
    pairs = shared_images(make_table(12), make_table(12))
    with pytest.raises(LeakError, match=r"12 shared:\n.*0000\.jpg = images/0000\.jpg \(same file\)") as caught:
        refuse_shared(pairs, "train", "val")
    assert "and 2 more" in str(caught.value)
    refuse_shared([], "train", "val")


def test_real_splits_of_one_video_share_nothing(camvid_tables):
    train, val = camvid_tables
    assert shared_images(train, val) == []
    assert {(pair.first, pair.second) for pair in shared_images(train, train)} == {(key, key) for key in train.keys}


@pytest.mark.parametrize("labels", [True, False])
def test_distributions_are_shares_that_json_can_say(labels):
    table = make_table(30, labels=labels)
    found = distribution(table, np.arange(5))
    assert set(found) == {"light", "pixels"} | ({"scale", "classes"} if labels else set())
    for entry in found.values():
        bins = len(entry["edges"]) - 1 if entry["edges"] else len(entry["labels"])
        assert len(entry["population"]) == len(entry["selection"]) == bins
        assert sum(entry["population"]) == pytest.approx(1, abs=1e-4)
        assert sum(entry["selection"]) == pytest.approx(1, abs=1e-4)
    json.dumps(found, allow_nan=False)


def test_distribution_of_everything_is_the_population():
    table = make_table(30)
    for entry in distribution(table, np.arange(30)).values():
        assert entry["population"] == entry["selection"]


def test_distribution_of_nothing_is_zero():
    for entry in distribution(make_table(5), np.array([], np.int64)).values():
        assert set(entry["selection"]) == {0.0}
