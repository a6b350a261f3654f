"""What was done to weights, told from before and after."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from calib.core.weightdiff import SAME, weight_change

Change = Callable[[np.ndarray], np.ndarray]


def weights(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, shape).astype(np.float32)


def quantized(array: np.ndarray) -> np.ndarray:
    amax = np.abs(array).max(axis=(1, 2, 3), keepdims=True)
    return (np.round(array / amax * 127) / 127 * amax).astype(np.float32)


CASES: dict[str, Change] = {
    "same": lambda w: w,
    "permuted": lambda w: w[::-1],
    "transposed": lambda w: w.transpose(1, 0, 2, 3),
    "flipped": lambda w: w[..., ::-1, ::-1],
    "rounded-fp16": lambda w: w.astype(np.float16).astype(np.float32),
    "zeroed": lambda w: np.where(np.arange(len(w))[:, None, None, None] == 2, 0, w),
    "scaled": lambda w: w * np.float32(2.5),
    "offset": lambda w: w + np.float32(0.5),
    "quantized": quantized,
    "perturbed": lambda w: w + weights(*w.shape, seed=2) * np.float32(0.1),
    "replaced": lambda w: weights(*w.shape, seed=9),
    "truncated-bf16": lambda w: (w.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32),
}


@pytest.mark.parametrize("kind", CASES)
def test_every_change_has_its_name(kind: str) -> None:
    before = weights(8, 8, 3, 3)
    found = weight_change(before, np.ascontiguousarray(CASES[kind](before)))
    assert found.kind == kind, found.words
    assert (found.relative == 0) == (kind == "same")


def test_rounding_of_a_fold_is_no_change() -> None:
    before = weights(8, 8, 3, 3)
    wide = before.astype(np.float64) * 1.7 / 1.7
    assert weight_change(before, wide.astype(np.float32)).kind == "same"
    assert weight_change(before, before * np.float32(1 + SAME / 4)).kind == "same"


def test_the_input_channels_permutation_is_told_with_its_axis() -> None:
    before = weights(8, 3, 3, 3)
    found = weight_change(before, before[:, [2, 1, 0]])
    assert (found.kind, found.details["axis"], found.details["order"]) == ("permuted", 1, [2, 1, 0])


def test_other_shapes_and_damaged_values() -> None:
    before = weights(8, 4, 3, 3)
    assert weight_change(before, weights(8, 4, 1, 1)).kind == "shape"
    broken = before.copy()
    broken[0, 0, 0, 0] = np.nan
    assert weight_change(before, broken).kind != "same"
    assert weight_change(np.zeros((4, 4), np.float32), np.ones((4, 4), np.float32)).kind != "same"
    assert weight_change(np.zeros(0, np.float32), np.zeros(0, np.float32)).kind == "same"


def test_axes_of_length_one_that_changed_places_are_a_change() -> None:
    """A depthwise weight [C, 1, k, k] stored as [1, C, k, k] does not even run."""
    weight = np.random.default_rng(0).normal(0, 1, (24, 1, 3, 3))
    assert weight_change(weight, weight.swapaxes(0, 1)).kind == "transposed"
    assert weight_change(weight, weight[:, 0]).kind == "same"
