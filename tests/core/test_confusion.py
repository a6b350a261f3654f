"""Confusion counts, against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix as sklearn_confusion

from calib.core.confusion import confusion_matrix, count_flips, count_label
from calib.core.metrics import class_iou, diagonal_counts, mean_iou, mean_iou_of_predicted_too


def draw(classes: int, seed: int, shape=(40, 50)) -> tuple[np.ndarray, np.ndarray, int]:
    rng = np.random.default_rng(seed)
    dtype = np.uint8 if classes <= 254 else np.uint16
    void = np.iinfo(dtype).max
    label = rng.integers(0, classes, shape).astype(dtype)
    label[rng.random(shape) < 0.1] = void
    return label, rng.integers(0, classes, shape).astype(dtype), int(void)


@pytest.mark.parametrize("classes", [2, 11, 19, 150, 256])
def test_equals_scikit_learn(classes: int) -> None:
    label, predicted, void = draw(classes, classes)
    scored = label != void
    matrix = confusion_matrix(label, predicted, classes)
    assert (matrix[:, :-1] == sklearn_confusion(label[scored], predicted[scored], labels=range(classes))).all()
    assert matrix[:, -1].sum() == 0
    assert matrix.sum() == scored.sum()


def test_predictions_outside_the_classes_are_misses_and_totals_hold() -> None:
    """A4-2: a prediction that holds id 255 or 34; A4-3: one that holds the number of classes itself."""
    label = np.array([[0, 1, 2, 255]], np.uint8)
    for foreign in (3, 34, 254, 255):
        predicted = np.array([[0, foreign, 2, 1]], np.uint8)
        matrix = confusion_matrix(label, predicted, 3)
        assert matrix.tolist() == [[1, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0]]
        assert matrix.sum() == 3
        assert class_iou(*diagonal_counts(matrix)).tolist() == [1.0, 0.0, 1.0]


def test_an_ignored_pixel_scores_nothing() -> None:
    """A4-8: a target of (0, 1, 2, 0, 255); A4-14: false positives on ignored pixels are removed, as for Cityscapes."""
    label = np.array([[0, 1, 2, 0, 255]], np.uint8)
    exact = confusion_matrix(label, np.array([[0, 1, 2, 0, 0]], np.uint8), 3)
    other = confusion_matrix(label, np.array([[0, 1, 2, 0, 2]], np.uint8), 3)
    assert (exact == other).all()
    assert class_iou(*diagonal_counts(exact)).tolist() == [1.0, 1.0, 1.0]


def test_a_class_absent_from_labels_has_no_iou() -> None:
    """A4-5 and A4-6: three classes, class 2 nowhere: neither 0 nor 1, and not in the mean."""
    label = np.array([[0, 0, 1, 1]], np.uint8)
    absent = class_iou(*diagonal_counts(confusion_matrix(label, np.array([[0, 0, 1, 0]], np.uint8), 3)))
    assert np.isnan(absent[2])
    assert mean_iou(absent) == pytest.approx((2 / 3 + 1 / 2) / 2)


def test_a_class_that_is_only_predicted_is_a_miss_elsewhere_and_has_a_mean_of_its_own_name() -> None:
    label = np.array([[0, 0, 1, 1]], np.uint8)
    matrix = confusion_matrix(label, np.array([[0, 2, 1, 1]], np.uint8), 3)
    right, labelled, predicted = diagonal_counts(matrix)
    iou = class_iou(right, labelled, predicted)
    assert np.isnan(iou[2])
    assert iou[0] == 0.5
    assert mean_iou(iou) == 0.75
    assert mean_iou_of_predicted_too(iou, predicted) == 0.5


def test_a_class_absent_from_predictions_scores_0() -> None:
    label = np.array([[0, 0, 1, 2]], np.uint8)
    iou = class_iou(*diagonal_counts(confusion_matrix(label, np.array([[0, 0, 1, 1]], np.uint8), 3)))
    assert iou.tolist() == [1.0, 0.5, 0.0]


def test_false_positives_outside_an_ignored_class_count() -> None:
    """A4-9: prediction the lower half, label the right half: 1/3; with class 0 ignored 1/2, a recall."""
    label = np.zeros((4, 4), np.uint8)
    label[:, 2:] = 1
    predicted = np.zeros((4, 4), np.uint8)
    predicted[2:] = 1
    assert class_iou(*diagonal_counts(confusion_matrix(label, predicted, 2)))[1] == pytest.approx(1 / 3)
    ignoring = np.where(label == 0, 255, label).astype(np.uint8)
    assert class_iou(*diagonal_counts(confusion_matrix(ignoring, predicted, 2)))[1] == 0.5


def test_images_add_up_whatever_their_order_and_split() -> None:
    """A4-11 and A4-15: one matrix over all pixels, however they are cut into images or batches."""
    label, predicted, _ = draw(7, 3, (64, 48))
    whole = confusion_matrix(label, predicted, 7)
    for cut in (1, 7, 32, 63):
        parts = [confusion_matrix(label[part], predicted[part], 7) for part in (slice(cut, None), slice(None, cut))]
        assert (sum(parts) == whole).all()


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match=r"\(2, 2\).*\(2, 3\)"):
        confusion_matrix(np.zeros((2, 2), np.uint8), np.zeros((2, 3), np.uint8), 2)


def test_flips_are_counted_by_place_and_by_what_they_did() -> None:
    label = np.array([[0, 0, 1, 1, 255]], np.uint8)
    before = np.array([[0, 0, 0, 0, 0]], np.uint8)
    after = np.array([[1, 0, 1, 2, 1]], np.uint8)
    marks = np.array([[2, 0, 0, 2, 0]], np.uint8)
    totals, by_class = np.zeros(4, np.int64), np.zeros(3, np.int64)
    count_flips(label, after, before, marks, totals, by_class)
    assert totals.tolist() == [4, 2, 1, 1]  # flipped, of those at boundaries, right before, right now
    assert by_class.tolist() == [1, 2, 0]
    count_flips(label, before, before, marks, totals, by_class)
    assert totals.tolist() == [4, 2, 1, 1]


def test_a_label_is_counted() -> None:
    label = np.array([[0, 2, 255, 2]], np.uint8)
    marks = np.array([[1, 3, 3, 0]], np.uint8)
    pixels, band = np.zeros(3, np.int64), np.zeros(3, np.int64)
    count_label(label, marks, pixels, band)
    assert pixels.tolist() == [1, 2, 2]
    assert band.tolist() == [0, 0, 1]
