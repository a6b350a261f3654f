"""Class maps of the worst images: the same ones whatever the order, bounded, and never half of an image."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from calib.core.confusion import confusion_matrix
from calib.core.tally import network_layout, to_sparse
from calib.stages.worst import LARGEST, WorstMaps, image_miou

GAINS = {"a": -0.1, "b": -0.4, "c": None, "d": -0.2, "e": -0.4, "f": -0.05}


def ids(key: str) -> np.ndarray:
    return np.full((4, 6), ord(key), np.uint16)


def offered(order: tuple[str, ...], count: int = 3) -> WorstMaps:
    worst = WorstMaps(count)
    for key in order:
        worst.offer("net", key, GAINS[key], {"net": ids(key), "reference": ids(key) + 1})
    return worst


def test_the_worst_are_kept_whatever_the_order() -> None:
    for order in itertools.permutations(GAINS):
        worst = offered(order)
        kept = [key for key in GAINS if worst.find(key, ["net", "reference"]) is not None]
        assert kept == ["b", "d", "e"]


def test_maps_come_back_as_they_were() -> None:
    found = offered(tuple(GAINS)).find("b", {"net", "reference"})
    assert found is not None
    assert np.array_equal(found["net"], ids("b"))
    assert np.array_equal(found["reference"], ids("b") + 1)
    assert found["net"].dtype == np.uint16


def test_networks_are_kept_apart_and_found_together() -> None:
    worst = offered(tuple(GAINS), count=1)
    worst.offer("other", "b", -0.1, {"other": ids("x")})
    worst.offer("other", "a", -0.3, {"other": ids("y")})
    assert worst.find("b", ["net"]) is not None
    assert worst.find("b", ["net", "other"]) is None
    worst.offer("other", "b", -0.9, {"other": ids("z")})
    assert worst.find("a", ["other"]) is None
    both = worst.find("b", ["net", "other"])
    assert both is not None
    assert np.array_equal(both["other"], ids("z"))


def test_none_are_kept_where_none_are_wanted() -> None:
    assert offered(tuple(GAINS), count=0).find("b", ["net"]) is None


@pytest.mark.parametrize("noise", [False, True])
def test_what_does_not_compress_is_not_kept(noise: bool) -> None:
    side = int(np.ceil(np.sqrt(1.2 * LARGEST)))
    large = np.random.default_rng(0).integers(0, 256 if noise else 1, (side, side)).astype(np.uint8)
    worst = WorstMaps(1)
    worst.offer("net", "a", -1.0, {"net": large})
    assert (worst.find("a", ["net"]) is None) == noise


def test_an_images_own_miou_is_the_mean_over_its_classes() -> None:
    label = np.array([[0, 0, 1, 9]], np.uint8)
    predicted = np.array([[0, 1, 1, 0]], np.uint8)
    layout = network_layout(3)
    vector = np.zeros(layout.length, np.int64)
    layout.view(vector, "confusion")[...] = confusion_matrix(label, predicted, 3)
    assert image_miou(to_sparse(vector), layout) == pytest.approx((1 / 2 + 1 / 2) / 2)
    assert image_miou(to_sparse(np.zeros(layout.length, np.int64)), layout) is None
