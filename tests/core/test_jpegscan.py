"""JPEG data is walked exactly: whole files, holes, junk, restarts, sampling."""

from __future__ import annotations

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.core.jpegscan import ScanCheck, check_scan

NOISE = np.random.default_rng(5).integers(0, 256, (75, 101, 3)).astype(np.uint8)
SMOOTH = cv2.GaussianBlur(NOISE, (9, 9), 4)
FACTORS = [0x111111, 0x211111, 0x221111, 0x121111, 0x411111]


def encode(pixels, quality=80, factor=0x221111, restart=0, optimize=0, progressive=0):
    options = [
        cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factor,
        cv2.IMWRITE_JPEG_RST_INTERVAL, restart, cv2.IMWRITE_JPEG_OPTIMIZE, optimize,
        cv2.IMWRITE_JPEG_PROGRESSIVE, progressive,
    ]  # fmt: skip
    return cv2.imencode(".jpg", pixels, options)[1].tobytes()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([NOISE, SMOOTH, NOISE[..., 0]]),
    st.integers(1, 75),
    st.integers(1, 101),
    st.integers(1, 100),
    st.sampled_from(FACTORS),
    st.integers(0, 5),
    st.integers(0, 1),
)
def test_whole_files_are_whole(pixels, height, width, quality, factor, restart, optimize):
    data = encode(np.ascontiguousarray(pixels[:height, :width]), quality, factor, restart, optimize)
    assert check_scan(data) == ScanCheck(True, 1.0, 0)
    assert check_scan(data[:-2] + b"\x01\x02\x03" + data[-2:]).extraneous == 3
    assert check_scan(data + b"behind the end").extraneous == 0


@pytest.mark.parametrize("restart", [0, 4])
def test_the_share_that_is_there(restart):
    data = encode(NOISE, restart=restart)
    start = data.index(b"\xff\xda")
    for share in (0.0, 0.3, 0.7, 0.95):
        cut = start + 14 + int((len(data) - start - 14) * share)
        check = check_scan(data[:cut] + b"\xff\xd9")
        assert check.done < 1
        assert abs(check.done - share) < 0.15


def test_a_missing_restart_marker():
    data = encode(NOISE, restart=4)
    place = data.index(b"\xff\xd3")
    assert check_scan(data[:place] + data[place + 2 :]).done < 1


def test_progressive_files_are_not_walked():
    assert not check_scan(encode(SMOOTH, progressive=1)).walked


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_damaged_files_end_in_an_answer(draw):
    data = bytearray(encode(SMOOTH[:24, :40], restart=draw.draw(st.sampled_from([0, 2]))))
    for _ in range(draw.draw(st.integers(1, 6))):
        data[draw.draw(st.integers(2, len(data) - 1))] = draw.draw(st.integers(0, 255))
    check = check_scan(bytes(data[: draw.draw(st.integers(4, len(data)))]))
    assert 0 <= check.done <= 1
    assert check.extraneous >= 0
