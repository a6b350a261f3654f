"""Labels of planes: integers stay integers, whatever colours or depths the file has."""

from __future__ import annotations

import contextlib

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from calib.edges.labels import LabelReader, read_label
from calib.edges.labels.planes import read_index_plane
from calib.errors import ImageError, ManifestError
from tests.datasets import CITYSCAPES, dataset, record
from tests.pictures import HTML, chunk, gradient, jpeg, png, tiff

IDS = np.arange(30, dtype=np.uint8).reshape(5, 6) % 4
DARK_PALETTE = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (90, 90, 90)]


def save(tmp_path, data, name="label.png"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def read(tmp_path, data, name="label.png", **options):
    return read_label(record(save(tmp_path, data, name)), dataset(**options))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(1, 11),
    st.integers(1, 19),
    st.booleans(),
    st.lists(st.integers(0, 4), min_size=1, max_size=5),
    st.integers(0, 2**32 - 1),
    st.booleans(),
)
def test_png_planes_of_every_depth_filter_and_interlace(
    tmp_path_factory, bits, height, width, interlace, filters, seed, palette
):
    plane = np.random.default_rng(seed).integers(0, 2**bits, (height, width))
    colours = [(7, 7, 7)] * 2**bits if palette and bits <= 8 else None
    extra = chunk(b"tRNS", b"\0") if colours else b""
    data = png(plane, bits, palette=colours, interlace=interlace, filters=filters)
    data = data.replace(chunk(b"IEND", b""), extra + chunk(b"IEND", b""))
    path = save(tmp_path_factory.mktemp("png"), data)
    found = read_index_plane(str(path)).values
    assert np.array_equal(found, plane)
    assert found.dtype == (np.uint16 if bits == 16 else np.uint8)
    if colours is None and bits >= 8:
        assert np.array_equal(found, cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED))


def test_a_palette_with_dark_and_equal_colours_loses_no_class(tmp_path):
    """Decoded through luminance, classes 0 to 2 would all be 0."""
    label = read(tmp_path, png(IDS, palette=DARK_PALETTE), names="abcd", label_format="palette")
    assert np.array_equal(label.ids, IDS)
    assert (label.mode, dict(label.foreign)) == ("palette", {})


def test_voc_mask_holds_indices_and_not_colours(shared):
    label = read_label(
        record(shared / "cases/images/voc_palette_mask.png"), dataset(names=map(str, range(21)), label_format="palette")
    )
    assert label.ids.shape == (338, 500)
    assert np.unique(label.ids).tolist() == [0, 5, 15, 255]
    assert not label.foreign


def test_16_bit_ids_are_kept_whole(shared, tmp_path):
    path = shared / "cases/images/instance_mask_16bit.png"
    foreign = read_label(record(path), dataset()).foreign
    assert foreign == {768: 2, 6913: 1, 6914: 2}
    label = read(tmp_path, png([[0, 255, 256, 299, 65535]], 16), names=map(str, range(300)), ignore_index=65535)
    assert label.ids.dtype == np.uint16
    assert label.ids.tolist() == [[0, 255, 256, 299, 65535]]
    assert label.void == 65535


def test_values_outside_the_table_become_void_and_are_counted(tmp_path):
    label = read(tmp_path, png([[0, 1, 2, 3, 3, 9, 255]]))
    assert label.ids.tolist() == [[0, 1, 2, 255, 255, 255, 255]]
    assert label.foreign == {3: 2, 9: 1}


def test_a_class_id_equal_to_the_number_of_classes_is_named(tmp_path):
    label = read(tmp_path, png([[0, 21]]), names=map(str, range(21)))
    assert label.foreign == {21: 1}


@pytest.mark.parametrize(("count", "dtype"), [(254, np.uint8), (255, np.uint16)])
def test_the_reserved_codes_never_meet_a_class(tmp_path, count, dtype):
    label = read(tmp_path, png([[0, count - 1, count]], 16), names=map(str, range(count)), ignore_index=None)
    assert label.ids.dtype == dtype
    assert label.ids.tolist() == [[0, count - 1, label.void]]
    assert label.foreign == {count: 1}


@pytest.mark.parametrize(("ignore", "bits", "stored"), [(-1, 8, 255), (-1, 16, 65535), (-100, 16, 65436), (11, 8, 11)])
def test_ignore_index_of_any_sign(tmp_path, ignore, bits, stored):
    label = read(tmp_path, png([[0, stored]], bits), ignore_index=ignore)
    assert label.ids.tolist() == [[0, 255]]
    assert not label.foreign


def test_label_map_replaces_the_identity(tmp_path):
    label = read(tmp_path, png([[7, 8, 9, 0]]), label_map={"7": 0, "8": 2, "9": -1})
    assert label.ids.tolist() == [[0, 2, 255, 255]]
    assert label.foreign == {0: 1}


def test_ade20k_zero_is_void_and_ids_start_at_one(tmp_path):
    label = read(tmp_path, png([[0, 1, 3, 4]]), label_format="ade20k")
    assert label.ids.tolist() == [[255, 0, 2, 255]]
    assert label.foreign == {4: 1}


@pytest.mark.parametrize("name", ["a_gtFine_labelIds.png", "a.png"])
def test_cityscapes_label_ids_become_train_ids(tmp_path, name):
    label = read(tmp_path, png([[7, 8, 33, 0, 6, 9, 255, 34]]), name, names=CITYSCAPES, label_format="cityscapes")
    assert label.ids.tolist() == [[0, 1, 18, 255, 255, 255, 255, 255]]
    assert label.foreign == {34: 1}


@pytest.mark.parametrize("name", ["a_gtFine_labelTrainIds.png", "a.png"])
def test_cityscapes_train_ids_are_recognised(tmp_path, name):
    label = read(tmp_path, png([[0, 18, 255, 7]]), name, names=CITYSCAPES, label_format="cityscapes")
    assert label.ids.tolist() == [[0, 18, 255, 7]]
    assert "trainIds already" in label.notes[0]


def test_cityscapes_name_and_values_at_odds_are_noted(tmp_path):
    data = png([[0, 18, 255, 7]])
    label = read(tmp_path, data, "a_labelIds.png", names=CITYSCAPES, label_format="cityscapes")
    assert label.ids.tolist() == [[255, 255, 255, 0]]
    assert label.notes == ("named labelIds, but its values look like trainIds",)


COLOURS = ((128, 0, 0), (0, 128, 0), (0, 0, 128))


@pytest.mark.parametrize("stored", ["rgb", "rgba", "palette"])
def test_rgb_labels_by_colour(tmp_path, stored):
    table = np.array([*COLOURS, (1, 2, 3)], np.uint8)
    ids = np.array([[0, 1, 2, 3, 3]])
    rgba = np.dstack([table[ids], np.zeros_like(ids)])
    data = {"rgb": png(table[ids]), "rgba": png(rgba), "palette": png(ids, palette=table)}[stored]
    label = read(tmp_path, data, label_format="rgb", colours=COLOURS)
    assert label.ids.tolist() == [[0, 1, 2, 255, 255]]
    assert label.foreign == {0x010203: 2}


def test_rgb_labels_by_label_map(tmp_path):
    data = png(np.array([[(10, 20, 30), (0, 0, 0)]]))
    label = read(tmp_path, data, label_format="rgb", label_map={"10, 20, 30": 2, "0,0,0": -1})
    assert label.ids.tolist() == [[2, 255]]
    assert not label.foreign


@pytest.mark.parametrize(
    ("data", "note"),
    [
        (png(np.dstack([IDS] * 3)), "equal channels"),
        (png(np.dstack([IDS] * 3 + [IDS * 0])), "equal channels"),
        (png(np.dstack([IDS, IDS * 0])), "equal channels"),
    ],
    ids=["rgb", "rgba", "graya"],
)
def test_gray_stored_with_more_channels_is_accepted_with_a_note(tmp_path, data, note):
    label = read(tmp_path, data, names="abcd")
    assert np.array_equal(label.ids, IDS)
    assert note in label.notes[0]


def test_gray_tiff_and_array_labels(tmp_path):
    assert np.array_equal(read(tmp_path, tiff(IDS), "l.tif", names="abcd").ids, IDS)
    np.save(tmp_path / "l.npy", IDS.astype(np.int64) - 1)
    label = read_label(record(tmp_path / "l.npy"), dataset(names="abc", ignore_index=-1))
    assert np.array_equal(label.ids, np.where(IDS == 0, 255, IDS - 1))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (jpeg(gradient(20, 20)), "lossy JPEG file with values .*%.*different values"),
        (cv2.imencode(".webp", gradient(20, 20), [cv2.IMWRITE_WEBP_QUALITY, 50])[1].tobytes(), "lossy WEBP"),
        (png(gradient(4, 4)), "colour picture"),
        (HTML, "HTML page"),
        (b"", "empty file"),
        (png(IDS)[:-14], "cut off"),
        (cv2.imencode(".bmp", IDS)[1].tobytes(), "palette BMP"),
        (b"\x93NUMPY broken", "NumPy"),
    ],
)
def test_what_is_no_index_label_is_refused(tmp_path, data, says):
    with pytest.raises(ImageError, match=says) as caught:
        read(tmp_path, data)
    assert caught.value.place == str(tmp_path / "label.png")


def test_damaged_plane_is_an_error(tmp_path):
    data = bytearray(png(np.random.default_rng(0).integers(0, 3, (50, 50))))
    data[60] ^= 0x55
    with pytest.raises(ImageError, match="rejects"):
        read(tmp_path, bytes(data))


@settings(max_examples=60, deadline=None)
@given(st.sampled_from([png(IDS, palette=DARK_PALETTE), png(IDS, 2), png(IDS, 16), tiff(IDS)]), st.data())
def test_damaged_labels_never_raise_anything_else(tmp_path_factory, data, draw):
    changed = bytearray(data)
    for _ in range(draw.draw(st.integers(1, 6))):
        changed[draw.draw(st.integers(0, len(data) - 1))] = draw.draw(st.integers(0, 255))
    path = save(tmp_path_factory.mktemp("damaged"), bytes(changed))
    label = None
    with contextlib.suppress(ImageError):
        label = read_label(record(path), dataset())
    assert label is None or label.ids.ndim == 2


def test_a_record_without_label_and_a_missing_label(tmp_path):
    reader = LabelReader(dataset())
    with pytest.raises(ImageError, match="no such file"):
        reader.read(record(tmp_path / "missing.png"))
    from calib.types.data import ImageRecord

    with pytest.raises(ImageError, match="expected a label, got none"):
        reader.read(ImageRecord("a.jpg", "/a.jpg"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"label_map": {"1,2,3": 0}}, "whole numbers as keys"),
        ({"names": ()}, "expected classes"),
    ],
)
def test_a_data_set_that_cannot_read_labels_says_so_at_once(options, says):
    with pytest.raises(ManifestError, match=says):
        LabelReader(dataset(**options))
