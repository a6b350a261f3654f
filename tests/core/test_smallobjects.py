"""Objects by size, against OpenCV's labelling of one class at a time."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from calib.core.smallobjects import BANDS, count_found, count_objects, find_objects


def by_opencv(label: np.ndarray, classes: int) -> list[tuple[int, int]]:
    """(class, area) of every component, ascending."""
    found = []
    for value in range(classes):
        count, _, stats, _ = cv2.connectedComponentsWithStats((label == value).astype(np.uint8), connectivity=8)
        found += [(value, int(stats[row, cv2.CC_STAT_AREA])) for row in range(1, count)]
    return sorted(found)


@given(
    hnp.arrays(np.uint8, st.tuples(st.integers(1, 12), st.integers(1, 12)), elements=st.sampled_from([0, 1, 2, 255]))
)
@settings(max_examples=150, deadline=None)
def test_components_are_those_of_opencv(label: np.ndarray) -> None:
    objects = find_objects(label, 3, 1.0)
    assert sorted(zip(objects.owner.tolist(), objects.area.tolist(), strict=True)) == by_opencv(label, 3)
    assert ((objects.map < 0) == (label == 255)).all()
    for number in range(len(objects.area)):
        own = objects.map == number
        assert own.sum() == objects.area[number]
        assert (label[own] == objects.owner[number]).all()


def test_every_pixel_may_be_an_object() -> None:
    label = np.tile(np.array([[0, 1], [2, 3]], np.uint8), (8, 8))
    assert len(find_objects(label, 4, 1.0).area) == 256


@pytest.mark.parametrize(
    ("side", "band"), [(1, None), (2, 0), (7, 0), (8, 1), (15, 1), (16, 2), (31, 2), (32, 3), (96, 4)]
)
def test_bands_are_areas_in_network_input(side: int, band: int | None) -> None:
    label = np.full((100, 100), 255, np.uint8)
    label[:side, :side] = 0
    counts = count_objects(find_objects(label, 1, 1.0), 1)
    expected = np.zeros(len(BANDS), int)
    if band is not None:
        expected[band] = 1
    assert counts[0, :, 0].tolist() == expected.tolist()
    halved = count_objects(find_objects(label, 1, 0.25), 1)  # the network sees a quarter of the area
    assert halved[0].sum() == (side * side / 4 >= 4)


def test_an_object_is_found_when_half_of_it_is_right() -> None:
    label = np.full((10, 10), 1, np.uint8)
    label[2:4, 2:6] = 0
    objects = find_objects(label, 2, 1.0)
    for right, found in ((4, 1), (3, 0)):
        hits = np.zeros(len(objects.area), np.int64)
        hits[objects.map[2, 2]] = right
        counted = count_found(objects, hits, 2)
        assert counted[0, 0, 0] == found
        assert counted[1, 0, 0] == right
