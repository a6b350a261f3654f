"""Pictures of every mode become upright RGB, and what cannot be used says why."""

from __future__ import annotations

import contextlib
import struct

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.edges import images
from calib.edges.images import read_header, read_picture
from calib.errors import ImageError
from tests.pictures import HTML, LFS, chunk, exif_block, gradient, jpeg, png, tiff

RGB = gradient(12, 17)
GRAY = RGB[..., 0]
RGBA = np.dstack([RGB, np.full((12, 17), 7, np.uint8)])
PALETTE = [(index * 3 % 256, index * 7 % 256, 255 - index) for index in range(256)]


def as_rgb(gray):
    return np.repeat(np.asarray(gray, np.uint8)[..., None], 3, axis=2)


def encoded(suffix, rgb, *options):
    return cv2.imencode(suffix, rgb[..., ::-1], list(options))[1].tobytes()


@pytest.mark.parametrize(
    ("data", "kind", "mode", "expected"),
    [
        (png(RGB), "png", "rgb", RGB),
        (png(GRAY), "png", "gray", as_rgb(GRAY)),
        (png(GRAY // 64, bits=2), "png", "gray", as_rgb(GRAY // 64 * 85)),
        (png(GRAY // 128, bits=1), "png", "gray", as_rgb(GRAY // 128 * 255)),
        (png(np.dstack([GRAY, GRAY])), "png", "graya", as_rgb(GRAY)),
        (png(RGBA), "png", "rgba", RGB),
        (png(GRAY, palette=PALETTE), "png", "palette", np.asarray(PALETTE, np.uint8)[GRAY]),
        (png(RGB.astype(int) * 257, bits=16), "png", "rgb16", RGB),
        (png(GRAY.astype(int) * 257, bits=16), "png", "gray16", as_rgb(GRAY)),
        (png(RGB, interlace=True), "png", "rgb", RGB),
        (encoded(".bmp", RGB), "bmp", "rgb", RGB),
        (encoded(".webp", RGB, cv2.IMWRITE_WEBP_QUALITY, 101), "webp", "rgb", RGB),
        (encoded(".tiff", RGB), "tiff", "rgb", RGB),
        (tiff(GRAY), "tiff", "gray", as_rgb(GRAY)),
        (tiff(GRAY.astype(int) * 257, bits=16), "tiff", "gray16", as_rgb(GRAY)),
        (encoded(".ppm", RGB), "pnm", "rgb", RGB),
    ],
)
def test_lossless_modes_are_exact(data, kind, mode, expected):
    picture = read_picture("x", data)
    assert (picture.kind, picture.mode) == (kind, mode)
    assert picture.pixels.dtype == np.uint8
    assert picture.pixels.flags.c_contiguous
    assert np.array_equal(picture.pixels, expected)


@pytest.mark.parametrize(("data", "mode", "expected"), [(jpeg(RGB), "rgb", RGB), (jpeg(GRAY), "gray", as_rgb(GRAY))])
def test_jpeg_is_rgb_and_not_bgr(data, mode, expected):
    picture = read_picture("x", data)
    assert picture.mode == mode
    assert np.abs(picture.pixels.astype(int) - expected).mean() < 3


def test_adobe_cmyk_is_read_as_inverted(shared):
    """Means of the same file in Pillow 12: 30.23, 5.44, 7.39; read as not inverted they lie above 200."""
    picture = read_picture(str(shared / "cases/images/cmyk.jpg"))
    assert picture.mode == "cmyk"
    assert np.allclose(picture.pixels.mean(axis=(0, 1)), (30.23, 5.44, 7.39), atol=1.5)


def test_16_bit_values_are_scaled_and_not_clipped():
    values = np.array([[0, 128, 129, 4660, 32768, 65535]])
    assert read_picture("x", png(values, bits=16)).pixels[0, :, 0].tolist() == [0, 0, 1, 18, 128, 255]


@pytest.mark.parametrize(
    ("orientation", "first", "second"),
    [
        (1, "top left", "top right"),
        (2, "top right", "top left"),
        (3, "bottom right", "bottom left"),
        (4, "bottom left", "bottom right"),
        (5, "top left", "bottom left"),
        (6, "top right", "bottom right"),
        (7, "bottom right", "top right"),
        (8, "bottom left", "top left"),
    ],
)
@pytest.mark.parametrize("form", ["png", "tiff"])
def test_exif_orientations(orientation, first, second, form):
    """Where the first and the last pixel of the stored first row end up, read off the EXIF table of tag 0x0112."""
    stored = np.zeros((3, 5), np.uint8)
    stored[0, 0], stored[0, -1] = 100, 200
    data = tiff(stored, orientation) if form == "tiff" else png(stored, extra=chunk(b"eXIf", exif_block(orientation)))
    picture = read_picture("x", data)
    gray = picture.pixels[..., 0]
    corners = {
        "top left": gray[0, 0],
        "top right": gray[0, -1],
        "bottom left": gray[-1, 0],
        "bottom right": gray[-1, -1],
    }
    assert (corners[first], corners[second]) == (100, 200)
    assert (picture.orientation, picture.applied) == (orientation, orientation != 1)
    assert gray.shape == ((5, 3) if orientation >= 5 else (3, 5))


@pytest.mark.parametrize("form", ["png", "tiff", "jpeg"])
@pytest.mark.parametrize(
    ("label_size", "applied", "size"),
    [((5, 3), True, (5, 3)), ((3, 5), False, (3, 5)), ((9, 9), True, (5, 3)), (None, True, (5, 3))],
)
def test_exif_is_applied_unless_only_the_stored_layout_has_the_labels_size(form, label_size, applied, size):
    stored = gradient(3, 5)[..., 0]
    data = {
        "png": png(stored, extra=chunk(b"eXIf", exif_block(6, "<"))),
        "tiff": tiff(stored, 6),
        "jpeg": jpeg(stored, 6),
    }[form]
    picture = read_picture("x", data, label_size)
    assert (picture.applied, picture.pixels.shape[:2]) == (applied, size)
    if form != "jpeg":
        expected = np.rot90(stored, -1) if applied else stored
        assert np.array_equal(picture.pixels[..., 0], expected)


@pytest.mark.parametrize("orientation", [6, 8])
def test_exif_files_of_a_camera(shared, orientation):
    path = str(shared / f"cases/images/exif_orientation_{orientation}.jpg")
    upright, stored = read_picture(path), read_picture(path, expected_size=(180, 120))
    assert (upright.pixels.shape, stored.pixels.shape) == ((120, 180, 3), (180, 120, 3))
    assert np.array_equal(upright.pixels, np.rot90(stored.pixels, -1 if orientation == 6 else 1))


def test_paths_in_any_script(tmp_path):
    path = tmp_path / "תמונה é 图.png"
    path.write_bytes(png(RGB))
    assert np.array_equal(read_picture(str(path)).pixels, RGB)


def test_bytes_before_and_behind_the_end_of_a_jpeg_do_not_matter():
    data = jpeg(RGB)
    junk = data[:-2] + b"\x12\x34\x56" + data[-2:] + b"\0\0\0junk"
    assert np.array_equal(read_picture("x", junk).pixels, read_picture("x", data).pixels)
    assert read_header("x", junk).trailing == 7


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty file"),
        (HTML, "HTML page"),
        (LFS, "git lfs pull"),
        (b"just words\n", "text file"),
        (bytes(4096), "begin with zeros"),
        (b"\x01\x02\x03\x04 random", "first bytes 01 02"),
        (b"\0\0\0\x20ftypheic\0\0\0\0", "HEIF"),
        (b"\x89PNG\r\n\x1a\n", "cut off"),
        (b"\xff\xd8\xff", "header is cut off"),
        (b"\xff\xd8\xff\xd9", "JPEG file without image data"),
    ],
)
def test_what_is_no_picture_is_named_for_what_it_is(tmp_path, data, says):
    path = tmp_path / "broken.png"
    path.write_bytes(data)
    with pytest.raises(ImageError, match=says) as caught:
        read_picture(str(path))
    assert caught.value.place == str(path)


@pytest.mark.parametrize("path", ["missing.png", "."])
def test_missing_files_and_folders(tmp_path, path):
    with pytest.raises(ImageError, match=r"no such file|directory"):
        read_picture(str(tmp_path / path))


@pytest.mark.parametrize("data", [jpeg(RGB), png(RGB), png(GRAY, bits=8)], ids=["jpeg", "png", "gray png"])
def test_cut_off_files_are_errors_at_every_length(data):
    for length in range(len(data)):
        with pytest.raises(ImageError):
            read_picture("cut", data[:length])


def test_damaged_png_data_is_an_error():
    data = bytearray(png(np.random.default_rng(0).integers(0, 256, (20, 20, 3))))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(ImageError, match="rejects"):
        read_picture("x", bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([jpeg(RGB, 6), png(RGB), tiff(GRAY), encoded(".bmp", RGB), encoded(".webp", RGB)]), st.data())
def test_damaged_files_never_raise_anything_else(data, draw):
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 8))):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    picture = None
    with contextlib.suppress(ImageError):
        picture = read_picture("x", bytes(changed))
    assert picture is None or picture.pixels.shape[2] == 3


def bombs():
    huge = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    tall = struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0)
    frame = jpeg(RGB)
    start = frame.index(b"\xff\xc0") + 5
    yield png(RGB)[:8] + chunk(b"IHDR", huge) + png(RGB)[33:], "million pixels"
    yield png(RGB)[:8] + chunk(b"IHDR", tall) + png(RGB)[33:], "cannot unpack"
    yield frame[:start] + b"\xff\xff\xff\xff" + frame[start + 4 :], "million pixels"


@pytest.mark.parametrize(("data", "says"), list(bombs()))
def test_forged_sizes_are_refused_before_decoding(monkeypatch, data, says):
    monkeypatch.setattr(images, "decode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(ImageError, match=says):
        read_picture("bomb", data)


def test_floating_point_samples_are_not_guessed():
    data = cv2.imencode(".tiff", np.ones((4, 4), np.float32))[1].tobytes()
    with pytest.raises(ImageError, match="floating-point"):
        read_picture("x", data)
