"""The calibrated range of the input against the declared preprocessing."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.inputrange import check_input, declared_range, misread_range
from calib.core.preprocess import preprocess
from calib.core.trtversions import judge_number
from calib.types.data import Preprocess

UNIT = Preprocess("rgb", (4, 4), 1 / 255, (0.0,), (1.0,))
IMAGENET = Preprocess("rgb", (4, 4), 1 / 255, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
RAW = Preprocess("bgr", (4, 4), 1.0, (0.0,), (1.0,))
CAFFE = Preprocess("bgr", (4, 4), 1.0, (104.0, 117.0, 123.0), (1.0,))
ALL = {"unit": UNIT, "imagenet": IMAGENET, "raw": RAW, "caffe": CAFFE}


@pytest.mark.parametrize("name", list(ALL))
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_the_declared_range_is_that_of_black_and_white_pictures(name, dtype):
    spec = Preprocess(**{**vars(ALL[name]), "dtype": dtype})
    seen = [preprocess(np.full((4, 4, 3), value, np.uint8), spec) for value in (0, 255)]
    assert declared_range(spec) == (float(np.min(seen)), float(np.max(seen)))


@pytest.mark.parametrize(
    ("name", "amax", "verdict"),
    [
        ("unit", 1.0083, "fits"), ("unit", 0.996, "fits"), ("unit", 0.8, "fits"), ("unit", 0.5, "narrow"),
        ("unit", 2.64, "wide"), ("unit", 255.0, "wide"), ("unit", 0.0, "other"), ("unit", float("inf"), "wide"),
        ("imagenet", 2.64, "fits"), ("imagenet", 2.12, "fits"), ("imagenet", 1.0, "other"), ("imagenet", 1.5, "narrow"),
        ("imagenet", 3.1, "wide"), ("raw", 255.0, "fits"), ("raw", 128.0, "other"), ("raw", 1.0, "other"),
        ("raw", 100.0, "narrow"), ("caffe", 151.1, "fits"), ("caffe", 255.0, "wide"),
    ],
)  # fmt: skip
def test_the_calibrated_range_fits_or_tells_what_it_is_of(name, amax, verdict):
    found = check_input(amax, ALL[name])
    assert found.verdict == verdict
    assert found.text


def test_raw_pixels_in_float64_read_as_float32_are_recognised():
    assert misread_range(RAW) == pytest.approx(3.748, abs=1e-3)
    small = Preprocess("rgb", (4, 4), 1 / 256, (0.0,), (1.0,))
    misread = misread_range(small)
    assert misread is not None
    assert misread_range(UNIT) is None
    assert "float64" in check_input(misread, small).text


@pytest.mark.parametrize("number", [5105, 6001, 7103, 7203, 8001, 8201, 8403, 8600, 8601, 9300, 100001, 101401, 101600])
def test_headers_of_known_versions_pass(number):
    assert judge_number(number) == ""


@pytest.mark.parametrize(
    ("number", "what"),
    [
        (10300, "writes 100300"),
        (8901, "no TensorRT 8.9"),
        (110000, "reads no calibration caches"),
        (12, "no TensorRT writes"),
        (109900, "no TensorRT 10.99"),
    ],
)
def test_headers_of_no_known_version_are_told_apart(number, what):
    assert what in judge_number(number)
