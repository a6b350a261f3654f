"""COCO labels: three encodings of masks, category tables, and panoptic segment ids."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calib.core.rle import encode_counts, mask_to_runs
from calib.edges.labels import LabelReader, read_label
from calib.errors import CalibError, FormatError, ImageError, ManifestError
from tests.datasets import dataset, record, write_coco
from tests.pictures import png

MASK = np.zeros((6, 8), bool)
MASK[1:4, 2:5] = True
SQUARE = [2.0, 1.0, 5.0, 1.0, 5.0, 4.0, 2.0, 4.0]
RUNS = [int(run) for run in mask_to_runs(MASK)]


def read(path, names=("a", "b"), **options):
    return read_label(record(path), dataset(names=names, label_format="coco", **options))


@pytest.mark.parametrize(
    "segmentation",
    [[SQUARE], SQUARE, {"counts": RUNS, "size": [6, 8]}, {"counts": encode_counts(RUNS), "size": [6, 8]}],
    ids=["polygon", "flat polygon", "run list", "run text"],
)
def test_encodings_give_the_same_mask(tmp_path, segmentation):
    path = write_coco(tmp_path / "i.json", [{"category_id": 2, "segmentation": segmentation}])
    label = read(path)
    assert np.array_equal(label.ids, np.where(MASK, 1, 255))


def test_runs_go_down_the_columns(tmp_path):
    """The counts of a public report: 10 columns of 9 rows."""
    counts = [6, 1, 40, 4, 5, 4, 5, 4, 21]
    path = write_coco(
        tmp_path / "i.json",
        [{"category_id": 1, "segmentation": {"counts": counts, "size": [9, 10]}}],
        size=(9, 10),
    )
    label = read(path)
    expected = np.repeat(np.arange(9) % 2, counts).reshape(10, 9).T
    assert np.array_equal(label.ids == 0, expected == 1)
    assert label.ids[6, 0] == 0


def test_small_objects_lie_on_large_ones_whatever_the_order(tmp_path):
    large = {"category_id": 1, "segmentation": [[0, 0, 8, 0, 8, 6, 0, 6]]}
    small = {"category_id": 2, "segmentation": [SQUARE]}
    first = read(write_coco(tmp_path / "1.json", [large, small])).ids
    second = read(write_coco(tmp_path / "2.json", [small, large])).ids
    assert np.array_equal(first, second)
    assert np.array_equal(first == 1, MASK)


def test_background_and_unknown_categories(tmp_path):
    unknown = {"category_id": 2, "segmentation": [SQUARE]}
    path = write_coco(tmp_path / "i.json", [unknown, {"category_id": 1, "segmentation": []}])
    label = read(path, names=("a", "background"), label_map={"background": 1})
    assert np.array_equal(label.ids, np.where(MASK, 255, 1))
    assert label.foreign == {2: 9}
    assert label.notes == ("1 annotations cover no pixel",)


@pytest.mark.parametrize("label_map", [{"1": 1, "2": 0}, {"a": 1, "b": 0}])
def test_categories_by_id_or_name(tmp_path, label_map):
    path = write_coco(tmp_path / "i.json", [{"category_id": 2, "segmentation": [SQUARE]}])
    assert np.array_equal(read(path, names=("x", "y"), label_map=label_map).ids == 0, MASK)


@pytest.mark.parametrize(
    ("segmentation", "says"),
    [
        ([[6, 1, 40, 1, 0]], "look like run lengths"),
        ([6, 1, 40, 1, 0], "look like run lengths"),
        ([[1.5, 2, 3, 4, 5, 6, 7]], "even number of coordinates, at least three points, got 7"),
        ([[1, 2, 3, 4]], "at least three points"),
        ([["a", 1]], "lists of numbers"),
        ({"counts": RUNS, "size": [8, 6]}, r"size \[6, 8\].*got size \[8, 6\]"),
        ({"counts": [1, 2], "size": [6, 8]}, "cover 3 pixels"),
        ({"counts": [50, -2], "size": [6, 8]}, "not negative"),
        ({"counts": "~~~", "size": [6, 8]}, "does not belong"),
        ({"counts": "P", "size": [6, 8]}, "ends inside a run"),
        ({"counts": [2**70], "size": [6, 8]}, "run lengths"),
        (5, "polygons or run-length"),
    ],
)
def test_malformed_segmentations_name_annotation_and_file(tmp_path, segmentation, says):
    path = write_coco(tmp_path / "i.json", [{"category_id": 1, "segmentation": segmentation}])
    with pytest.raises(ImageError, match=says) as caught:
        read(path)
    assert caught.value.place == f"{path}, annotation 1 of 1.jpg"


def test_far_coordinates_are_cut_off(tmp_path):
    far = [[-1e300, -1e300, 1e300, -1e300, 1e300, 3, -1e300, 3]]
    label = read(write_coco(tmp_path / "i.json", [{"category_id": 1, "segmentation": far}]))
    assert np.array_equal(label.ids == 0, np.repeat([[True], [False]], 3, axis=0).repeat(8, axis=1))


@pytest.mark.parametrize(
    ("content", "error", "says"),
    [
        ("<html>", FormatError, "COCO instances"),
        ('{"images": []}', FormatError, "missing required field"),
        ('{"images": [], "annotations": [], "categories": []}', ImageError, "got 0 entries"),
        ('{"images": [], "annotations": [], "categories": [{"id": 1, "name": "z"}]}', ManifestError, "such as z"),
    ],
)
def test_files_that_do_not_fit(tmp_path, content, error, says):
    path = tmp_path / "i.json"
    path.write_text(content)
    with pytest.raises(error, match=says):
        read(path)


def test_the_longest_file_name_wins(tmp_path):
    path = write_coco(tmp_path / "i.json", [{"category_id": 1, "segmentation": [SQUARE]}])
    content = json.loads(path.read_text())
    content["images"] = [
        {"id": 1, "file_name": "other/1.jpg", "height": 2, "width": 2},
        {"id": 7, "file_name": "images/1.jpg", "height": 6, "width": 8},
    ]
    path.write_text(json.dumps(content))
    assert np.array_equal(read(path).ids == 0, MASK)


def panoptic(tmp_path, ids, segments, **options):
    folder = tmp_path / "panoptic_val"
    folder.mkdir()
    (folder / "1.png").write_bytes(segment_png(ids))
    content = {
        "images": [],
        "annotations": [{"file_name": "1.png", "image_id": 1, "segments_info": segments}],
        "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 9, "name": "other"}],
    }
    (tmp_path / "panoptic_val.json").write_text(json.dumps(content))
    data = dataset(names=("a", "b"), label_format="coco-panoptic", **options)
    return LabelReader(data).read(record(folder / "1.png"))


def segment_png(ids):
    ids = np.asarray(ids)
    return png(np.dstack([ids % 256, ids // 256 % 256, ids // 65536]))


def test_panoptic_ids_are_r_256g_65536b(tmp_path):
    segments = [{"id": 256, "category_id": 1}, {"id": 65536, "category_id": 2}, {"id": 65793, "category_id": 1}]
    label = panoptic(tmp_path, [[0, 256, 65536, 65793]], segments)
    assert label.ids.tolist() == [[255, 0, 1, 0]]
    assert not label.foreign
    assert not label.notes


def test_panoptic_ids_are_checked_both_ways(tmp_path):
    segments = [{"id": 5, "category_id": 1}, {"id": 6, "category_id": 9}, {"id": 7, "category_id": 2}]
    label = panoptic(tmp_path, [[5, 6, 6, 300]], segments)
    assert label.ids.tolist() == [[0, 255, 255, 255]]
    assert label.foreign == {9: 2, 300: 1}
    assert label.notes == ("1 segments of the JSON file have no pixel: [7]",)


def test_panoptic_of_zeros_only_is_noted(tmp_path):
    label = panoptic(tmp_path, [[0, 0]], [])
    assert label.ids.tolist() == [[255, 255]]
    assert "every pixel is void" in label.notes[0]


def test_panoptic_gray_png_holds_ids(tmp_path):
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "1.png").write_bytes(png([[0, 300]], 16))
    content = {
        "annotations": [{"file_name": "1.png", "segments_info": [{"id": 300, "category_id": 2}]}],
        "categories": [{"id": 2, "name": "b"}],
    }
    (tmp_path / "p.json").write_text(json.dumps(content))
    label = read_label(record(tmp_path / "p" / "1.png"), dataset(names=("a", "b"), label_format="coco-panoptic"))
    assert label.ids.tolist() == [[255, 1]]
    assert "gray values" in label.notes[0]


def test_panoptic_without_entry_or_json(tmp_path):
    data = dataset(names=("a",), label_format="coco-panoptic")
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "1.png").write_bytes(segment_png([[0]]))
    with pytest.raises(CalibError, match="no such file"):
        read_label(record(tmp_path / "p" / "1.png"), data)
    (tmp_path / "p.json").write_text('{"annotations": [], "categories": [{"id": 1, "name": "a"}]}')
    with pytest.raises(ImageError, match="annotation with this file_name"):
        read_label(record(tmp_path / "p" / "1.png"), data)
