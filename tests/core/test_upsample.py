"""Resize and argmax in one pass: every decision is that of a plain float64 resize followed by an argmax."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core.upsample import predict_binary, predict_classes, predict_nearest, sampling


def resize(planes: np.ndarray, height: int, width: int) -> np.ndarray:
    """Bilinear resize of ``[C, h, w]`` written down from its definition (align_corners=False), pixel by pixel axis."""
    for axis, wanted in ((1, height), (2, width)):
        length = planes.shape[axis]
        at = np.clip((np.arange(wanted) + 0.5) * length / wanted - 0.5, 0, length - 1)
        low = np.floor(at).astype(int)
        share = (at - low).reshape([-1 if place == axis else 1 for place in range(3)])
        high = np.minimum(low + 1, length - 1)
        planes = np.take(planes, low, axis) * (1 - share) + np.take(planes, high, axis) * share
    return planes


def whole(count: int, cells: int):
    return sampling(count, cells, cells, 0, cells)


def predict(logits: np.ndarray, height: int, width: int) -> tuple[np.ndarray, tuple[int, int]]:
    classes = logits.shape[0]
    predicted = np.empty((height, width), np.uint8 if classes <= 254 else np.uint16)
    rows, columns = whole(height, logits.shape[1]), whole(width, logits.shape[2])
    return predicted, predict_classes(logits, rows, columns, predicted, classes)


@given(
    st.integers(2, 20), st.integers(1, 17), st.integers(1, 17), st.integers(1, 40), st.integers(1, 40),
    st.integers(0, 2**32 - 1), st.booleans(),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_equals_a_float64_resize_and_argmax(classes, h, w, height, width, seed, channels_last) -> None:
    rng = np.random.default_rng(seed)
    logits = (rng.normal(0, 1, (classes, h, w)) * 10 ** rng.uniform(-3, 4)).astype(np.float32)
    given_ = np.moveaxis(np.ascontiguousarray(np.moveaxis(logits, 0, -1)), -1, 0) if channels_last else logits
    predicted, _ = predict(given_, height, width)
    resized = resize(logits.astype(np.float64), height, width)
    differing = predicted != resized.argmax(0)
    # the two float64 computations round differently; they may part where two classes are equal to the last bits
    ordered = np.sort(resized, 0)
    assert (ordered[-1] - ordered[-2])[differing].max(initial=0.0) <= 1e-12 * np.abs(logits).max()


@pytest.mark.parametrize("classes", [2, 11, 19, 150, 256])
def test_class_counts(classes: int) -> None:
    logits = np.random.default_rng(classes).normal(0, 1, (classes, 12, 9)).astype(np.float32)
    predicted, (ties, lost) = predict(logits, 30, 31)
    assert (predicted == resize(logits.astype(np.float64), 30, 31).argmax(0)).all()
    assert (ties, lost) == (0, 0)
    assert predicted.dtype == (np.uint8 if classes < 255 else np.uint16)


def test_near_ties_are_decided_in_float64() -> None:
    """Differences far below float32's resolution of the blended value still decide."""
    logits = np.zeros((3, 2, 2), np.float32)
    logits[0], logits[1] = 1000.0, 1000.0
    logits[1, 0, 0] = np.nextafter(np.float32(1000.0), np.float32(2000.0))
    predicted, (ties, _) = predict(logits, 64, 64)
    resized = resize(logits.astype(np.float64), 64, 64)
    assert (predicted == resized.argmax(0)).all()
    assert predicted[0, 0] == 1
    assert predicted[-1, -1] == 0
    assert ties == np.count_nonzero(resized[0] == resized[1])


def test_a_tie_goes_to_the_first_class_and_is_counted() -> None:
    """A4-17: logits of [5, 5, 1] everywhere."""
    logits = np.empty((3, 4, 4), np.float32)
    logits[0] = logits[1] = 5
    logits[2] = 1
    predicted, (ties, lost) = predict(logits, 9, 7)
    assert (predicted == 0).all()
    assert (ties, lost) == (63, 0)
    predicted, (ties, _) = predict(logits[::-1].copy(), 9, 7)
    assert (predicted == 1).all()
    assert ties == 63


def test_a_nan_is_no_class_and_an_infinity_is_one() -> None:
    logits = np.zeros((3, 4, 4), np.float32)
    logits[1, 0, 0] = np.nan
    logits[2, 3, 3] = np.inf
    predicted, (_, lost) = predict(logits, 4, 4)
    assert predicted[0, 0] == 254
    assert lost == 1
    assert predicted[3, 3] == 2
    assert predicted[1, 1] == 0


def test_all_channels_minus_infinity_is_the_first_class() -> None:
    predicted, (ties, lost) = predict(np.full((4, 3, 3), -np.inf, np.float32), 3, 3)
    assert (predicted == 0).all()
    assert (ties, lost) == (9, 0)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(1, 30), st.integers(1, 30), st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_binary_equals_a_resize_and_a_threshold(h, w, height, width, seed) -> None:
    scores = np.random.default_rng(seed).uniform(0, 1, (h, w)).astype(np.float32)
    predicted = np.empty((height, width), np.uint8)
    ties, lost = predict_binary(scores, 0.5, whole(height, h), whole(width, w), predicted)
    resized = resize(scores[None].astype(np.float64), height, width)[0]
    differing = predicted != (resized > 0.5)
    assert np.abs(resized - 0.5)[differing].max(initial=0.0) < 1e-12
    assert lost == 0
    assert ties <= scores.size * height * width


def test_binary_on_the_threshold_is_the_first_class() -> None:
    predicted = np.empty((4, 4), np.uint8)
    ties, _ = predict_binary(np.full((2, 2), 0.5, np.float32), 0.5, whole(4, 2), whole(4, 2), predicted)
    assert ties == 16
    assert (predicted == 0).all()


def test_class_numbers_are_enlarged_by_the_cell_a_pixel_lies_in() -> None:
    ids = np.array([[3, 7], [9, 1]])
    assert (
        predict_nearest(ids, whole(4, 2), whole(6, 2)).tolist() == [[3, 3, 3, 7, 7, 7]] * 2 + [[9, 9, 9, 1, 1, 1]] * 2
    )
    assert predict_nearest(np.arange(9).reshape(3, 3), whole(1, 3), whole(1, 3)).tolist() == [[4]]


@pytest.mark.parametrize("stride", [1, 2, 4, 8])
def test_a_padded_input_is_cut_at_its_content(stride: int) -> None:
    """Letterbox: 24 of 32 rows show the picture; resizing the cut logits must give the same."""
    logits = np.random.default_rng(stride).normal(0, 1, (5, 32 // stride, 48 // stride)).astype(np.float32)
    rows = sampling(37, 32 // stride, 32, 8, 16)
    columns = sampling(90, 48 // stride, 48, 0, 48)
    predicted = np.empty((37, 90), np.uint8)
    predict_classes(logits, rows, columns, predicted, 5)
    cut = logits[:, 8 // stride : 24 // stride].astype(np.float64)
    assert (predicted == resize(cut, 37, 90).argmax(0)).all()


def test_agrees_with_torch() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    logits = np.random.default_rng(4).normal(0, 3, (19, 33, 65)).astype(np.float32)
    predicted, _ = predict(logits, 129, 257)
    tensor = torch.from_numpy(logits.astype(np.float64))[None]
    resized = torch.nn.functional.interpolate(tensor, (129, 257), mode="bilinear", align_corners=False)
    assert (predicted == resized[0].numpy().argmax(0)).all()


def test_agrees_with_opencv_but_for_rounding() -> None:
    import cv2

    logits = np.random.default_rng(5).normal(0, 3, (11, 44, 60)).astype(np.float32)
    predicted, _ = predict(logits, 360, 480)
    resized = np.stack([cv2.resize(plane, (480, 360), interpolation=cv2.INTER_LINEAR) for plane in logits])
    differing = predicted != resized.argmax(0)
    ordered = np.sort(resized, 0)
    assert differing.mean() < 1e-3
    assert (ordered[-1] - ordered[-2])[differing].max(initial=0.0) < 1e-3
