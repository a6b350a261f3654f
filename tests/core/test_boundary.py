"""Boundary IoU, against the definition applied class by class."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from calib.core.boundary import band_width, boundary_band, boundary_iou
from tests.evalsets import blobs


def band_by_erosion(mask: np.ndarray, distance: int) -> np.ndarray:
    """The authors' construction: pad with background, erode ``distance`` times by 3 x 3, keep what went."""
    padded = cv2.copyMakeBorder(mask.astype(np.uint8), 1, 1, 1, 1, cv2.BORDER_CONSTANT, value=0)
    eroded = cv2.erode(padded, np.ones((3, 3), np.uint8), iterations=distance)[1:-1, 1:-1]
    return mask & (eroded == 0)


@pytest.mark.parametrize(("classes", "distance"), [(2, 1), (5, 3), (300, 2)])
def test_the_window_answers_for_every_class_at_once(classes: int, distance: int) -> None:
    ids = blobs(classes, (60, 80), seed=classes)
    band = boundary_band(ids, distance)
    for value in np.unique(ids):
        assert (band & (ids == value) == band_by_erosion(ids == value, distance)).all()


def test_a_uniform_image_has_its_border_as_boundary() -> None:
    band = boundary_band(np.zeros((9, 9), np.uint8), 2)
    assert band.sum() == 81 - 25
    assert not band[2:7, 2:7].any()


def test_the_width_is_two_percent_of_the_diagonal() -> None:
    assert band_width((360, 480)) == 12
    assert band_width((1024, 2048)) == 46
    assert band_width((3, 3)) == 1


def test_iou_is_null_without_a_boundary_in_the_label() -> None:
    found = boundary_iou(np.array([10, 0, 8]), np.array([10, 5, 0]), np.array([5, 0, 0]))
    assert found[0] == pytest.approx(5 / 15)
    assert np.isnan(found[1])
    assert found[2] == 0
