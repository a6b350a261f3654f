"""Contact sheets."""

from __future__ import annotations

import cv2
import numpy as np
import pytest

from calib.edges.report.sheet import Tile, choose_columns, render_sheet, shorten


def decode(data):
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)


@pytest.fixture
def tiles(tmp_path):
    """Five pictures of different shape and colour."""
    made = []
    for number, size in enumerate([(60, 80), (120, 90), (20, 300), (300, 20), (1, 1)]):
        picture = np.full((*size, 3), (40 * number, 255 - 40 * number, 90), np.uint8)
        path = tmp_path / f"{number}.png"
        cv2.imwrite(str(path), picture)
        made.append(Tile(str(path), f"{number + 1}  images/{number}.png", ("random  score 1", "luma 90")))
    return made


@pytest.mark.parametrize("count", [0, 1, 5])
def test_sheets_hold_their_pictures(tiles, count):
    sheet = decode(render_sheet("Chosen", ["a note"], tiles[:count], 2))
    assert sheet.shape[0] > 60
    assert sheet.shape[1] > 300
    for tile in tiles[:count][:2]:
        colour = cv2.imread(tile.address)[0, 0]
        assert (sheet == colour).all(axis=2).sum() > 1000


def test_workers_do_not_change_the_bytes(tiles):
    assert render_sheet("Chosen", [], tiles, 1) == render_sheet("Chosen", [], tiles, 4)


def test_a_picture_that_is_gone_shows_an_empty_frame(tiles):
    gone = Tile("/nowhere/1.png", "1  gone", ())
    assert decode(render_sheet("Chosen", [], [gone, *tiles[:1]])).shape[1] > 300


def test_large_sets_stay_readable(tiles):
    sheet = decode(render_sheet("Chosen", ["word " * 300], tiles * 100, 2))
    assert 1500 < sheet.shape[1] < 2500
    assert sheet.shape[0] < 30000


def test_columns_grow_with_the_set():
    assert [choose_columns(count, 200, 150) for count in (0, 1, 20, 500)] == [3, 3, 5, 10]


def test_long_keys_lose_their_front():
    short = shorten("leftImg8bit/train/aachen/aachen_000000_000019_leftImg8bit.png", 200)
    assert short.startswith("...")
    assert short.endswith("_leftImg8bit.png")
    assert shorten("straße.png", 500) == "stra?e.png"
