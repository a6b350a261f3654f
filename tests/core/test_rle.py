"""Run lengths and polygons: laws, an independent fill, and the format's published example."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from calib.core.rle import decode_counts, encode_counts, fill_polygon, mask_to_runs, runs_to_mask

MASKS = arrays(np.bool_, array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=30))


@given(MASKS)
def test_masks_survive_runs_and_text(mask):
    runs = mask_to_runs(mask)
    assert runs.sum() == mask.size
    assert np.array_equal(runs_to_mask(runs, mask.shape), mask)
    assert np.array_equal(decode_counts(encode_counts(runs)), runs)


@given(st.lists(st.integers(0, 2**40), max_size=40))
def test_any_runs_survive_text(runs):
    assert decode_counts(encode_counts(runs)).tolist() == runs


@pytest.mark.parametrize(("runs", "text"), [([0, 1], "01"), ([6, 1, 40, 4, 5, 4, 5, 4, 21], "61X13mN000`0")])
def test_text_as_pycocotools_writes_it(runs, text):
    assert encode_counts(runs) == text


@given(
    st.lists(st.tuples(st.floats(-10, 40), st.floats(-10, 40)), min_size=3, max_size=9),
    st.integers(1, 30),
    st.integers(1, 30),
)
def test_polygons_by_the_even_odd_rule_at_pixel_centres(points, height, width):
    polygon = np.array(points, np.float64)
    expected = np.zeros((height, width), bool)
    for row, column in np.ndindex(height, width):
        expected[row, column] = inside(polygon, column + 0.5, row + 0.5)
    assert np.count_nonzero(fill_polygon(polygon, (height, width)) != expected) <= 1  # a centre on an edge


def inside(polygon, x, y):
    crossings = 0
    for (x0, y0), (x1, y1) in zip(polygon, np.roll(polygon, -1, axis=0), strict=True):
        if (y0 <= y) != (y1 <= y) and x0 + (y - y0) * (x1 - x0) / (y1 - y0) <= x:
            crossings += 1
    return crossings % 2 == 1


def test_a_rectangle_on_pixel_borders_is_exact():
    mask = fill_polygon(np.array([[2.0, 1.0], [5.0, 1.0], [5.0, 4.0], [2.0, 4.0]]), (6, 8))
    assert np.argwhere(mask).min(axis=0).tolist() == [1, 2]
    assert np.argwhere(mask).max(axis=0).tolist() == [3, 4]
    assert mask.sum() == 9
