"""How far tensors are apart, and by how many cells a map is shifted."""

from __future__ import annotations

import math

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core.difference import Accumulator, difference, spatial_shift


def noise(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)


def test_against_numpy() -> None:
    wanted = noise(3, 70000)
    own = wanted + 0.01 * noise(3, 70000, seed=1)
    found = difference(own, wanted)
    error = own.astype(np.float64) - wanted
    assert found.relative == pytest.approx(np.linalg.norm(error) / np.linalg.norm(wanted.astype(np.float64)))
    assert found.cosine == pytest.approx(np.corrcoef(own.ravel(), wanted.ravel())[0, 1], abs=1e-6)
    assert found.maximum == np.abs(error).max()
    assert found.sqnr_db == pytest.approx(40, abs=0.2)


def test_equal_missing_and_other_shapes() -> None:
    assert difference(noise(4), noise(4)).sqnr_db == math.inf
    assert difference(None, noise(4)).relative == math.inf
    assert difference(noise(4), noise(5)).sqnr_db == -math.inf
    assert difference(np.zeros(3), np.zeros(3)).relative == 0
    assert difference(np.ones(3), np.zeros(3)).relative == math.inf


def test_what_is_not_finite_is_counted() -> None:
    wanted = noise(10)
    own = wanted.copy()
    own[[2, 5]] = np.inf, np.nan
    found = difference(own, wanted)
    assert (found.non_finite, found.relative, found.elements) == (2, math.inf, 10)
    both = wanted.copy()
    both[2] = np.nan
    assert difference(both, both.copy() + 0).relative == 0


@given(st.integers(1, 6), st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_adding_in_parts_or_at_once_is_the_same(parts: int, seed: int) -> None:
    wanted, own = noise(6, 50, seed=seed), noise(6, 50, seed=seed + 1)
    whole, split = Accumulator(), Accumulator()
    whole.add(own, wanted)
    for one, other in zip(np.array_split(own, parts), np.array_split(wanted, parts), strict=True):
        single = Accumulator()
        single.add(one, other)
        split.merge(single)
    assert split.difference.relative == pytest.approx(whole.difference.relative, rel=1e-12)
    assert split.difference.maximum == whole.difference.maximum


@pytest.mark.parametrize(("rows", "columns"), [(0.0, 0.0), (2.0, -3.0), (0.5, 0.0), (0.25, 1.5)])
def test_a_shift_is_measured(rows: float, columns: float) -> None:
    maps = np.stack([cv2.GaussianBlur(noise(60, 80, seed=seed), (0, 0), 4) for seed in range(3)])
    matrix = np.array([[1, 0, columns], [0, 1, rows]], np.float32)
    moved = np.stack([cv2.warpAffine(plane, matrix, (80, 60), borderMode=cv2.BORDER_REPLICATE) for plane in maps])
    found = spatial_shift(moved, maps)
    assert (found.rows, found.columns) == (pytest.approx(rows, abs=0.1), pytest.approx(columns, abs=0.1))
    assert rows == columns == 0 or found.explained > 0.8
