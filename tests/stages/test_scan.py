"""The scan stage on images handed in as arrays."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from calib.core.scores import ScoreSettings, reduce_luma
from calib.errors import ImageError
from calib.stages.scan import (
    Failure,
    ScanImage,
    ScanPlan,
    Stamp,
    describe_group,
    find_unchanged,
    gather_failures,
    start_part,
)
from calib.types.data import ImageRecord

PLAN = ScanPlan(ScoreSettings(), None, ("a", "b"))
STAMPS = (Stamp(10, 20), Stamp(5, 6))


def error(key):
    return ImageError(f"/data/{key}", expected="a picture", got="an empty file", remedy="replace it")


class ArraySource:
    """Images made from their keys; some cannot be read."""

    def __init__(self, broken=()):
        self.broken = set(broken)

    def stamp(self, record):
        del record
        return STAMPS

    def load(self, record):
        if record.key in self.broken:
            raise error(record.key)
        rng = np.random.default_rng(int(record.key.removesuffix(".png")))
        ids = rng.integers(0, 3, (20, 24)).astype(np.uint8)
        luma = reduce_luma(rng.integers(0, 256, (20, 24)).astype(np.uint8), 1 << 17)
        return ScanImage(luma, ids, int((ids == 2).sum()), "ab" * 32)


def records(count):
    return [ImageRecord(f"{n}.png", f"/data/{n}.png", f"/data/{n}-label.png", {"time": "night"}) for n in range(count)]


def scanned(count=12, broken=(), workers=2):
    done = []
    with ThreadPoolExecutor(workers) as pool:
        wanted = records(count)
        part = start_part(wanted, ArraySource(broken), PLAN, pool, lambda: done.append(1))
        table, failures = part.finish({record.key: STAMPS for record in wanted})
    assert len(done) == count
    return table, failures


def test_workers_do_not_change_the_scores():
    (one, _), (four, _) = scanned(workers=1), scanned(workers=4)
    assert one.keys == four.keys
    for name, column in one.columns.items():
        np.testing.assert_array_equal(column, four.columns[name])


def test_what_cannot_be_read_is_gathered_and_the_rest_scored():
    table, failures = scanned(6, broken={"1.png", "4.png"})
    assert table.keys == ("0.png", "2.png", "3.png", "5.png")
    assert [failure.key for failure in failures] == ["1.png", "4.png"]
    whole, _ = scanned(6)
    np.testing.assert_array_equal(table.columns["luma_mean"], whole.columns["luma_mean"][[0, 2, 3, 5]])


def test_one_error_names_every_file():
    text = str(gather_failures([Failure(f"{n}.png", error(f"{n}.png")) for n in range(3)], 10, "set, split train"))
    assert "3 of 10" in text
    assert all(f"{n}.png: expected a picture, got an empty file" in text for n in range(3))
    many = str(gather_failures([Failure(f"{n}.png", error(f"{n}.png")) for n in range(130)], 200, "set"))
    assert "and 30 more" in many


def test_the_error_names_a_label_where_the_label_is_at_fault():
    text = str(gather_failures([Failure("1.png", error("1-label.png"))], 2, "set"))
    assert "1.png: /data/1-label.png: expected" in text


def test_unchanged_files_are_found():
    table, _ = scanned(4)
    assert find_unchanged(table, records(4), [STAMPS] * 4) == {f"{n}.png": n for n in range(4)}


@pytest.mark.parametrize(
    "stamps",
    [
        (Stamp(11, 20), Stamp(5, 6)),
        (Stamp(10, 21), Stamp(5, 6)),
        (Stamp(10, 20), Stamp(5, 7)),
        (Stamp(10, 20), Stamp(-1, -1)),
    ],
)
def test_any_change_is_noticed(stamps):
    table, _ = scanned(2)
    assert find_unchanged(table, records(2), [STAMPS, stamps]) == {"0.png": 0}


def test_another_address_or_group_is_a_change():
    table, _ = scanned(2)
    moved = [ImageRecord("0.png", "/other/0.png", "/data/0-label.png", {"time": "night"}), records(2)[1]]
    assert find_unchanged(table, moved, [STAMPS] * 2) == {"1.png": 1}
    regrouped = [records(2)[0], ImageRecord("1.png", "/data/1.png", "/data/1-label.png", {"time": "day"})]
    assert find_unchanged(table, regrouped, [STAMPS] * 2) == {"0.png": 0}


def test_foreign_label_values_are_counted():
    table, _ = scanned(3)
    assert (table.columns["foreign_share"] > 0.2).all()
    assert (table.columns["label_share"] < 0.8).all()


def test_groups_are_written_in_order():
    assert describe_group(ImageRecord("a", "a", group={"time": "day", "city": "x"})) == "city=x;time=day"
    assert describe_group(ImageRecord("a", "a")) == ""
