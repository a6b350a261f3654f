"""Luma of files: the same as that of the decoded colours, at less cost."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from calib.core.scores import reduce_luma
from calib.edges.images import read_picture
from calib.edges.luma import read_luma
from calib.errors import ImageError
from tests.pictures import jpeg, png


def colours(size=(40, 56)):
    y, x = np.mgrid[: size[0], : size[1]]
    return np.stack([x * 4, y * 5, 255 - x * 2 - y], axis=2).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize("encode", [jpeg, png], ids=["jpeg", "png"])
def test_luma_is_that_of_the_colours(encode):
    data = encode(colours())
    expected = cv2.cvtColor(read_picture("a", data).pixels, cv2.COLOR_RGB2GRAY)
    assert np.abs(read_luma("a", data).pixels.astype(int) - expected).mean() < 0.6


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_their_colours_are(orientation):
    data = jpeg(colours(), orientation)
    for size in (None, (40, 56), (56, 40)):
        expected = cv2.cvtColor(read_picture("a", data, size).pixels, cv2.COLOR_RGB2GRAY)
        found = read_luma("a", data, size).pixels
        assert found.shape == expected.shape
        assert np.abs(found.astype(int) - expected).mean() < 0.6


@pytest.mark.parametrize("data", [b"", b"<!DOCTYPE html>", jpeg(colours())[:200]], ids=["empty", "html", "cut off"])
def test_what_is_no_picture_is_an_error_that_names_the_file(data):
    with pytest.raises(ImageError, match=r"street/7\.jpg"):
        read_luma("street/7.jpg", data)


def test_odd_files_read_like_their_pictures(shared):
    for path in sorted((shared / "cases" / "images").iterdir()):
        try:
            pixels = read_picture(str(path)).pixels
        except ImageError:
            with pytest.raises(ImageError):
                read_luma(str(path))
            continue
        found = read_luma(str(path)).pixels
        assert np.abs(found.astype(int) - cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)).mean() < 1.0, path


@pytest.mark.parametrize("encode", [jpeg, png], ids=["jpeg", "png"])
@pytest.mark.parametrize("size", [(64, 96), (65, 99), (67, 90), (200, 203)])
@pytest.mark.parametrize("most", [10**6, 2000, 500, 100])
def test_reduced_luma_is_near_the_average_of_blocks(encode, size, most):
    data = encode(cv2.GaussianBlur(colours(size), (0, 0), 2))
    whole, reduced = read_luma("a", data), read_luma("a", data, None, most)
    expected = reduce_luma(whole.pixels, most)
    assert (reduced.size, reduced.shift) == (size, expected.shift)
    assert reduced.pixels.shape == expected.pixels.shape
    assert np.abs(reduced.pixels.astype(int) - expected.pixels).mean() < 1.0


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("size", [(64, 96), (65, 99)])
def test_reduced_pictures_are_turned_too(orientation, size):
    data = jpeg(cv2.GaussianBlur(colours(size), (0, 0), 2), orientation)
    upright = cv2.cvtColor(read_picture("a", data).pixels, cv2.COLOR_RGB2GRAY)
    found, expected = read_luma("a", data, None, 2000), reduce_luma(upright, 2000)
    assert found.size == upright.shape
    assert found.shift == expected.shift
    assert np.abs(found.pixels.astype(int) - expected.pixels).mean() < 1.0
