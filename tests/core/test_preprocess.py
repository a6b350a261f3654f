"""Preprocessing: the formula, the layouts, and where pixels end up."""

from __future__ import annotations

from dataclasses import replace

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.core.preprocess import geometry, preprocess
from calib.types.data import Preprocess
from tests.pictures import gradient

SPEC = Preprocess("rgb", None, 1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
PIXELS = np.random.default_rng(3).integers(0, 256, (9, 13, 3)).astype(np.uint8)


def formula(pixels, spec):
    wide = pixels.astype(np.float64)
    return (wide * spec.scale - np.array(spec.mean)) / np.array(spec.std)


def test_the_formula_to_half_a_unit_in_the_last_place():
    found = preprocess(PIXELS, SPEC)
    assert found.dtype == np.float32
    assert found.flags.c_contiguous
    assert np.array_equal(found, formula(PIXELS, SPEC).astype(np.float32).transpose(2, 0, 1))


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("colour", ["rgb", "bgr", "gray"])
def test_layouts_hold_the_same_values(colour, dtype):
    channels = 1 if colour == "gray" else 3
    spec = replace(SPEC, colour=colour, dtype=dtype, mean=SPEC.mean[:channels], std=SPEC.std[:channels])
    if dtype == "uint8":
        spec = replace(spec, scale=1.0, mean=(0.0,), std=(1.0,))
    first, last = preprocess(PIXELS, spec), preprocess(PIXELS, replace(spec, layout="nhwc"))
    assert first.shape == (channels, 9, 13)
    assert first.dtype == last.dtype == np.dtype(dtype)
    assert last.flags.c_contiguous
    assert np.array_equal(first, last.transpose(2, 0, 1))


def test_bgr_swaps_pixels_and_not_the_statistics():
    spec = replace(SPEC, colour="bgr")
    assert np.array_equal(preprocess(PIXELS, spec), preprocess(PIXELS[..., ::-1], replace(SPEC, colour="rgb")))


def test_gray_and_a_single_mean():
    spec = replace(SPEC, colour="gray", mean=(0.5,), std=(0.5,))
    gray = cv2.cvtColor(PIXELS, cv2.COLOR_RGB2GRAY)
    assert np.array_equal(preprocess(PIXELS, spec)[0], ((gray / 255 - 0.5) / 0.5).astype(np.float32))


def test_uint8_is_rounded_and_cut_off():
    spec = replace(SPEC, dtype="uint8", scale=2.0, mean=(100.0,), std=(1.0,))
    found = preprocess(np.array([[[0, 50, 51]], [[127, 177, 178]]], np.uint8), spec)
    assert found[:, :, 0].T.tolist() == [[0, 0, 2], [154, 254, 255]]


def test_the_picture_is_resized_before_it_becomes_float():
    spec = replace(SPEC, size=(5, 6))
    resized = cv2.resize(PIXELS, (6, 5), interpolation=cv2.INTER_LINEAR)
    assert np.array_equal(preprocess(PIXELS, spec), preprocess(resized, SPEC))


def test_the_input_is_not_changed():
    pixels = PIXELS.copy()
    pixels.flags.writeable = False
    for fit in ("stretch", "letterbox", "crop"):
        preprocess(pixels, replace(SPEC, size=(20, 7), fit=fit, colour="bgr"))
    assert np.array_equal(pixels, PIXELS)


def test_letterbox_centres_and_pads():
    spec = replace(SPEC, size=(10, 10), fit="letterbox", scale=1.0, mean=(0.0,), std=(1.0,), pad=114)
    found = preprocess(np.full((4, 8, 3), 200, np.uint8), spec)
    plan = geometry((4, 8), spec)
    assert (plan.content.top, plan.content.bottom, plan.content.left, plan.content.right) == (2, 7, 0, 10)
    assert np.unique(plan.content.of(found)).tolist() == [200.0]
    assert np.unique(found[:, :2]).tolist() == np.unique(found[:, 7:]).tolist() == [114.0]


def test_crop_takes_the_centre():
    spec = replace(SPEC, size=(4, 4), fit="crop", scale=1.0, mean=(0.0,), std=(1.0,))
    pixels = gradient(4, 10)
    plan = geometry((4, 10), spec)
    assert (plan.covered.left, plan.covered.right) == (3, 7)
    assert np.array_equal(preprocess(pixels, spec), pixels[:, 3:7].transpose(2, 0, 1).astype(np.float32))


SIDES = st.integers(1, 3000)


@given(SIDES, SIDES, SIDES, SIDES, st.sampled_from(["stretch", "letterbox", "crop"]))
def test_boxes_lie_inside_and_keep_the_aspect(height, width, rows, columns, fit):
    plan = geometry((height, width), replace(SPEC, size=(rows, columns), fit=fit))
    for box, outer in ((plan.content, plan.network), (plan.covered, plan.source)):
        assert 0 <= box.top < box.bottom <= outer[0]
        assert 0 <= box.left < box.right <= outer[1]
    inner, outer, box = (
        (plan.source, plan.network, plan.content) if fit == "letterbox" else (plan.network, plan.source, plan.covered)
    )
    ratio = min(outer[0] / inner[0], outer[1] / inner[1])
    for side, found in zip(inner, box.size, strict=True):
        assert fit == "stretch" or found == 1 or abs(found - side * ratio) <= 0.5 + 1e-9


def test_without_a_size_the_picture_keeps_its_own():
    plan = geometry((7, 9), replace(SPEC, fit="letterbox"))
    assert plan.network == plan.content.size == plan.covered.size == (7, 9)
