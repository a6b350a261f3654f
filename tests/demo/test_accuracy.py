import numpy as np
import pytest

from calib.demo.accuracy import Scored, Slice, count_pixels, evaluation_document, interval, iou, mean_iou, slices_of
from calib.demo.classes import CLASS_NAMES, POLE, ROAD, SKY

CLASSES = len(CLASS_NAMES)
LIGHTS = ("day", "day", "dusk", "night")


def counts_of(*pairs):
    """One image's counts from (label, prediction, pixels)."""
    counts = np.zeros((CLASSES, CLASSES), np.int64)
    for label, predicted, pixels in pairs:
        counts[label, predicted] += pixels
    return counts


@pytest.fixture
def reference():
    return np.stack([counts_of((SKY, SKY, 50), (ROAD, ROAD, 40), (POLE, POLE, 8), (POLE, SKY, 2))] * 4)


@pytest.fixture
def worse(reference):
    lost = reference.copy()
    lost[2:, POLE, POLE], lost[2:, POLE, SKY] = 4, 6
    return lost


def test_pixels_are_counted_by_label_and_prediction_and_void_is_left_out():
    label = np.array([[0, 0, 1], [2, 255, 1]], np.uint8)
    predicted = np.array([[0, 1, 1], [2, 0, 0]])
    np.testing.assert_array_equal(count_pixels(label, predicted, 3), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


def test_iou_by_hand():
    found = iou(counts_of((0, 0, 6), (0, 1, 2), (1, 1, 4), (1, 0, 1), (1, 3, 1)))
    assert found[0] == pytest.approx(6 / 9)
    assert found[1] == pytest.approx(4 / 8)
    assert np.isnan(found[3])  # predicted, but the labels do not have it


def test_slices_hold_the_right_images():
    parts = {part.name: part for part in slices_of(LIGHTS)}
    assert list(parts) == ["all", "day", "dusk", "night", "small", "small in the dark"]
    assert parts["night"].images.tolist() == [False, False, False, True]
    assert parts["small in the dark"].images.tolist() == [False, False, True, True]
    assert POLE in parts["small"].classes
    assert ROAD not in parts["small"].classes


def test_the_mean_takes_present_classes_only(reference):
    part = Slice("all", np.ones(4, bool), tuple(range(CLASSES)))
    assert mean_iou(reference, part) == pytest.approx((50 / 52 + 1.0 + 8 / 10) / 3)


def test_an_interval_holds_the_difference_and_equal_networks_have_none(reference, worse):
    part = Slice("all", np.ones(4, bool), (POLE,))
    assert interval(reference, reference, part, seed=0) == (0.0, 0.0)
    low, high = interval(worse, reference, part, seed=0)
    assert low < 100.0 * (mean_iou(worse, part) - mean_iou(reference, part)) < high <= 0.0
    assert interval(worse, reference, part, seed=0) == (low, high)


def test_draws_that_miss_a_rare_class_do_not_count(reference):
    rare = reference.copy()
    rare[1:, POLE] = 0
    part = Slice("all", np.ones(4, bool), (POLE,))
    assert interval(rare, rare, part, seed=0) == (0.0, 0.0)


def test_the_document_follows_the_contract(reference, worse):
    models = [Scored("float", "demo.onnx", reference), Scored("random, minmax", "builds/random/minmax.qdq.onnx", worse)]
    document = evaluation_document(models, slices_of(LIGHTS), seed=0)
    first, second = document["models"]
    assert (document["schema"], document["reference"]) == (1, "float")
    assert "vs_reference" not in first
    assert first["per_class"]["Car"] is None
    assert first["pixel_accuracy"] == pytest.approx(0.98)
    assert first["slices"]["dusk"]["images"] == 1
    assert set(first["slices"]["small"]["per_class"]) == {"Pole", "Sign", "Pedestrian", "Bicyclist"}
    versus = second["vs_reference"]
    assert versus["slices"]["day"]["delta"] == 0.0
    assert versus["slices"]["small in the dark"]["delta"] == pytest.approx(-40.0)
    assert versus["per_class"]["Pole"]["delta"] == pytest.approx(-20.0)
    assert versus["per_class"]["Car"] is None
    assert versus["miou"]["ci95"][0] <= versus["miou"]["delta"] <= versus["miou"]["ci95"][1]
