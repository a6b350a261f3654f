"""Manifests and lists become data sets; every mistake in them gets one clear message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from calib.edges.labels import LabelReader
from calib.edges.manifest import (
    list_splits,
    load_dataset,
    parse_preprocess,
    require_preprocess,
    shipped_manifests,
)
from calib.edges.manifest.addresses import expand, join_address
from calib.errors import ManifestError, UsageError
from tests.datasets import write_coco
from tests.pictures import png

MINIMAL = """\
name: tiny
splits:
  train: {images: "images/train/*.png", labels: "labels/{stem}.png"}
  val: {images: "images/val/*.png", labels: "labels/{stem}.png"}
classes: [road, car]
"""
FULL_PREPROCESS = "preprocess: {colour: rgb, size: 352x480, scale: 1/255, mean: [0, 0.5, 1], std: 1}\n"


@pytest.fixture
def tree(tmp_path):
    """Images of two splits, with a hidden file and a folder among them."""
    for name in ("train/b.png", "train/a.png", "train/.hidden.png", "train/folder.png/x.txt", "val/c.png"):
        path = tmp_path / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return tmp_path


def write(folder: Path, text: str, name="set.yaml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def keys(data):
    return [record.key for record in data.records]


def test_a_minimal_manifest(tree):
    data = load_dataset(write(tree, MINIMAL), "train")
    assert keys(data) == ["images/train/a.png", "images/train/b.png"]
    assert data.records[0].label == f"{tree}/labels/a.png"
    assert data.classes.names == ("road", "car")
    assert data.classes.colours == ((128, 0, 0), (0, 128, 0))
    assert (data.name, data.split, data.label_format, data.preprocess) == ("tiny", "train", "index", None)
    assert len(data.manifest_sha256) == 64


def test_camvid(shared, repository):
    data = load_dataset(str(repository / "data_manifests/camvid.yaml"), "train")
    assert len(data.records) == 367
    assert all(Path(record.path).is_file() and Path(record.label).is_file() for record in data.records)
    assert {record.group["sequence"] for record in data.records} == {"0001TP", "0006R0", "0016E5"}
    assert data.classes.ignore_index == 11
    spec = require_preprocess(data)
    assert (spec.colour, spec.size, spec.scale, spec.layout) == ("rgb", (352, 480), 1 / 255, "nchw")
    assert (spec.mean, spec.std) == ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    elsewhere = load_dataset("camvid", "val", root=str(shared / "camvid"))
    assert len(elsewhere.records) == 101


def test_root_from_flag_variable_and_default(tree, monkeypatch):
    text = MINIMAL + "root: ${TINY_ROOT:-.}\n"
    (tree / "sub").mkdir()
    path = write(tree / "sub", text)
    with pytest.raises(ManifestError, match=r"line 3, splits.train.*images/train/\*.png.*holds set.yaml"):
        load_dataset(path, "train")
    assert len(load_dataset(path, "train", root=str(tree)).records) == 2
    monkeypatch.setenv("TINY_ROOT", str(tree))
    assert len(load_dataset(path, "train").records) == 2


def test_expansion():
    environment = {"A": "x", "EMPTY": ""}
    assert expand("p", "$A/${A}/${B:-y z}/${EMPTY:-d}", environment) == "x/x/y z/d"
    with pytest.raises(ManifestError, match="environment variable B"):
        expand("p", "${B}/x", environment)


def test_captured_fields_reach_labels_and_inputs(tmp_path):
    for city in ("bonn", "ulm"):
        (tmp_path / "img" / city).mkdir(parents=True)
        (tmp_path / "img" / city / f"{city}_1_left.png").write_bytes(b"")
    path = write(
        tmp_path,
        """\
name: x
splits:
  train:
    images: "img/{city}/{base}_left.png"
    labels: "gt/{city}/{base}_ids.png"
    inputs: {depth: "depth/{path}.npy"}
group: {city: '^img/([^/]+)', first: '^img/u'}
inputs: {depth: 1/2}
""",
    )
    data = load_dataset(path, None)
    assert [record.label for record in data.records] == [
        f"{tmp_path}/gt/bonn/bonn_1_ids.png",
        f"{tmp_path}/gt/ulm/ulm_1_ids.png",
    ]
    assert data.records[1].inputs == {"depth": f"{tmp_path}/depth/img/ulm/ulm_1_left.npy"}
    assert [dict(record.group) for record in data.records] == [
        {"city": "bonn", "first": ""},
        {"city": "ulm", "first": "img/u"},
    ]
    assert data.inputs == {"depth": 0.5}


@pytest.mark.parametrize(
    ("images", "found"),
    [
        ('"images/**/*.png"', 3),
        ("images", 3),
        ('["images/train/*.png", "images/val/*", "images/val/c.png"]', 3),
        ('"images/train/[ab].png"', 2),
        ('"images/train/[!a].png"', 1),
        ('"images/*/?.png"', 3),
    ],
)
def test_patterns(tree, images, found):
    assert len(load_dataset(write(tree, f"name: x\nsplits: {{all: {{images: {images}}}}}\n"), None).records) == found


def test_excluded_images(tree):
    text = 'name: x\nsplits: {all: {images: images, exclude: "**/a.png"}}\n'
    assert keys(load_dataset(write(tree, text), "all")) == ["images/train/b.png", "images/val/c.png"]


def test_text_lists_fill_templates_and_columns(tree):
    (tree / "names.txt").write_text("# chosen\nb\n\na\n")
    (tree / "pairs.txt").write_text("images/val/c.png labels/c.png\n")
    text = """\
name: x
splits:
  names: {list: names.txt, images: "images/train/{line}.png", labels: "labels/{line}.png"}
  pairs: {list: pairs.txt}
"""
    path = write(tree, text)
    named, paired = load_dataset(path, "names"), load_dataset(path, "pairs")
    assert keys(named) == ["images/train/a.png", "images/train/b.png"]
    assert named.records[0].label == f"{tree}/labels/a.png"
    assert paired.records[0].label == f"{tree}/labels/c.png"


ROWS = [
    {"image": "b.png", "label": "lb.png", "time": "day", "input:depth": "b.npy", "split": "train"},
    {"image": "a.png", "label": "", "time": "night", "input:depth": "", "split": "train"},
    {"image": "v.png", "label": "lv.png", "time": "day", "input:depth": "v.npy", "split": "val"},
]


def table(folder, form):
    path = folder / f"list.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(ROWS), path)
    elif form == "jsonl":
        path.write_text("\n".join(json.dumps(row) for row in ROWS) + "\n\n")
    else:
        mark = {"csv": ",", "tsv": "\t"}[form]
        lines = [list(ROWS[0]), *(list(row.values()) for row in ROWS)]
        path.write_text("\ufeff" + "\r\n".join(mark.join(line) for line in lines), encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("form", ["csv", "tsv", "jsonl", "parquet"])
def test_tables(tmp_path, form):
    path = table(tmp_path, form)
    assert list_splits(path) == ("train", "val")
    data = load_dataset(path, "train")
    assert keys(data) == ["a.png", "b.png"]
    first, second = data.records
    assert (first.label, dict(first.group), dict(first.inputs)) == (None, {"time": "night"}, {})
    assert second.label == f"{tmp_path}/lb.png"
    assert second.inputs == {"depth": f"{tmp_path}/b.npy"}
    with pytest.raises(ManifestError, match="splits train, val, got 'test'"):
        load_dataset(path, "test")
    text = f"name: x\nsplits: {{all: {{list: list.{form}}}}}\nclasses: [a]\n"
    assert len(load_dataset(write(tmp_path, text), None).records) == 3


def test_a_table_elsewhere_keeps_absolute_addresses(tmp_path):
    path = write(tmp_path, "image\n/data/x.png\n../y.png\n", "list.csv")
    data = load_dataset(path, None, root="/base/images")
    assert keys(data) == ["../y.png", "/data/x.png"]
    assert [record.path for record in data.records] == ["/base/images/../y.png", "/data/x.png"]
    inside = write(tmp_path, f"image\n{tmp_path}/a/x.png\n", "inside.csv")
    assert keys(load_dataset(inside, None)) == ["a/x.png"]


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("l.csv", "file,label\na,b\n", "column 'image'"),
        ("l.csv", "image,label\n", "at least one row"),
        ("l.csv", "", "at least one row"),
        ("l.csv", "image,label\na,b,c\n", "line 2: expected 2 columns"),
        ("l.csv", "image,label\na\n", "line 2: expected 2 columns"),
        ("l.csv", "image,label\n,b\n", "row 1: expected an image"),
        ("l.csv", "image\na\na\n", "a twice"),
        ("l.jsonl", '{"image": "a"}\n{image}\n', "line 2: expected one JSON object"),
        ("l.jsonl", "[1]\n", "line 1: expected one JSON object"),
        ("l.parquet", "PAR0", "Parquet"),
        ("l.csv", "image\ns3://bucket/a.png\n", "remote storage is not supported yet"),
    ],
)
def test_malformed_tables(tmp_path, name, text, says):
    with pytest.raises(ManifestError, match=says):
        load_dataset(write(tmp_path, text, name), None)


def test_a_coco_file_is_a_data_set(tmp_path):
    path = write_coco(tmp_path / "instances.json", [], categories=((9, "b"), (3, "a")))
    data = load_dataset(str(path), None, root="/images")
    assert [(record.key, record.path, record.label) for record in data.records] == [
        ("1.jpg", "/images/1.jpg", str(path))
    ]
    assert data.classes.names == ("a", "b")
    assert (data.label_format, data.label_map) == ("coco", {"3": 0, "9": 1})


def test_panoptic_labels_by_their_json(tree):
    text = "name: x\nlabel_format: coco-panoptic\nsplits: {val: {images: images/val, labels: gt/panoptic_val.json}}\n"
    data = load_dataset(write(tree, text), None)
    assert data.records[0].label == f"{tree}/gt/panoptic_val/c.png"


def test_classes_colours_and_label_map(tree):
    text = MINIMAL.replace(
        "classes: [road, car]",
        "classes: [{name: road, colour: [1, 2, 3]}, car]\nignore_index: 255\n"
        "label_map: {7: road, 8: 1, 9: void, 10: 255, '1,2,3': car}",
    )
    data = load_dataset(write(tree, text), "val")
    assert data.classes.colours == ((1, 2, 3), (0, 128, 0))
    assert data.label_map == {"7": 0, "8": 1, "9": -1, "10": -1, "1,2,3": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("splits:", "split:"), r"line 2, split: .*unknown key 'split'.*\n.*did you mean 'splits'"),
        (("labels:", "label:"), r"line 3, splits.train.label.*did you mean 'labels'"),
        (("name: tiny\n", ""), "expected key 'name', got no such key"),
        (("classes: [road, car]", "classes: [road, road]"), "'road' twice"),
        (("classes: [road, car]", "classes: road"), "line 5, classes"),
        (("classes: [road, car]", "classes: [road, yes]"), r"line 5, classes.1.*got True"),
        (("classes:", "name: again\nclasses:"), r"line 5.*'name' again \(first on line 1\)"),
        (("classes:", "label_format: indices\nclasses:"), "line 5, label_format.*'index'"),
        (("classes:", "label_format: rgb\nclasses:"), "a colour for every class"),
        (("classes:", "label_format: cityscapes\nclasses:"), "19 Cityscapes classes"),
        (("classes:", "label_map: {3: van}\nclasses:"), "label_map.3.*'van'"),
        (("classes:", "label_map: {3: 2}\nclasses:"), "train id of 0 to 1"),
        (("classes:", "colours: [[1, 2, 3]]\nclasses:"), "one colour for each of 2"),
        (("classes:", "group: {g: '('}\nclasses:"), "line 5, group.g.*regular expression"),
        (("classes:", "root: s3://bucket/x\nclasses:"), "line 5, root.*remote storage"),
        (("classes:", "root: $UNSET_ROOT_VARIABLE\nclasses:"), "variable UNSET_ROOT_VARIABLE"),
        (("classes:", "preprocess: {colour: rgb}\nclasses:"), r"line 5, preprocess.*and 3 more"),
        (("classes:", "preprocess: {color: rgb}\nclasses:"), "did you mean 'colour'"),
        (("classes:", "inputs: {depth: {color: rgb}}\nclasses:"), "did you mean 'colour'"),
        (("{stem}.png", "{stm}.png"), r"one of the fields \{folder\}.*got \{stm\}"),
        (("labels/{stem}.png", "labels/one.png"), "the same file for every image"),
        (("*.png", "{stem}.png"), "field names other than"),
        (("*.png", "*.{png,jpg}"), "letters, digits"),
        (("*.png", "*.jpg"), r"line 3, splits.train.*match 'images/train/\*.jpg'"),
        (('images: "images/train/*.png", ', ""), "images: PATTERN or list: FILE"),
        (('images: "images/train/*.png"', "list: names.txt"), "list 'names.txt' below the root"),
        (("splits:", "splits: {}\nother:"), "unknown key 'other'"),
        (("name: tiny", "name: [tiny"), "line 2, column 7"),
        (("name: tiny", "name: a: b"), "line 1, column 8"),
        (("classes: [road, car]", "classes: [\t"), "expected YAML"),
    ],
)
def test_mistakes_in_manifests(tree, change, says):
    old, new = change
    path = write(tree, MINIMAL.replace(old, new))
    with pytest.raises(ManifestError, match=f"(?s){says}") as caught:
        load_dataset(path, "train")
    assert caught.value.place.startswith(path)


@pytest.mark.parametrize("text", ["", "- a\n", "just text", "\x00"])
def test_what_is_no_manifest(tmp_path, text):
    with pytest.raises(ManifestError, match="YAML"):
        load_dataset(write(tmp_path, text), "train")


@pytest.mark.parametrize(("split", "got"), [("tset", "'tset'"), (None, "no --split"), ("", "''")])
def test_a_missing_split_lists_those_there_are(tree, split, got):
    with pytest.raises(ManifestError, match=f"splits train, val, got {got}"):
        load_dataset(write(tree, MINIMAL), split)


@pytest.mark.parametrize("path", ["camvidd", "missing.yaml", "/", "s3://b/set.yaml"])
def test_a_missing_manifest_lists_the_shipped_ones(path):
    with pytest.raises(ManifestError, match=r"camvid|remote storage"):
        load_dataset(path, "train")


@pytest.mark.parametrize("mean", ["0.485:0.456:0.406", "0.485/0.456/0.406", "0.485 0.456 0.406"])
def test_preprocess_specs(mean):
    spec = parse_preprocess(f"colour=bgr, size=352x480, scale=1/255, mean={mean}, std=1, layout=nhwc, pad=0")
    assert (spec.colour, spec.size, spec.scale, spec.layout, spec.pad) == ("bgr", (352, 480), 1 / 255, "nhwc", 0)
    assert (spec.mean, spec.std) == ((0.485, 0.456, 0.406), (1.0,))


def test_preprocess_overrides_key_by_key(tree):
    path = write(tree, MINIMAL + FULL_PREPROCESS)
    stated = load_dataset(path, "val").preprocess
    assert (stated.size, stated.scale, stated.mean, stated.std) == ((352, 480), 1 / 255, (0.0, 0.5, 1.0), (1.0,))
    assert load_dataset(path, "val", preprocess="size=keep").preprocess.size is None
    for text in ("preprocess: {size: [8, 9]}\n", "size: [8, 9]\n"):
        other = write(tree, text, "pre.yaml")
        changed = load_dataset(path, "val", preprocess=other).preprocess
        assert (changed.size, changed.scale) == ((8, 9), 1 / 255)


def test_preprocess_is_never_guessed(tree):
    data = load_dataset(write(tree, MINIMAL), "val")
    with pytest.raises(ManifestError, match=r"never guessed.*\n.*--preprocess colour=rgb,size=352x480,scale=1/255"):
        require_preprocess(data)
    with pytest.raises(ManifestError, match="expected key 'colour', got no such key"):
        load_dataset(write(tree, MINIMAL), "val", preprocess="size=3x4")


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ("sise=3x4", UsageError, "did you mean 'size'"),
        ("size=3x4,size=5x6", UsageError, "each key once"),
        ("scale=", UsageError, "'scale='"),
        ("nothing", UsageError, "no such file"),
        ("size=480", ManifestError, "HxW"),
        ("size=0x4", ManifestError, "above zero"),
        ("scale=one", ManifestError, "fraction such as 1/255"),
        ("scale=1/0", ManifestError, "fraction such as 1/255"),
        ("scale=0", ManifestError, "above zero"),
        ("scale=nan", ManifestError, "finite"),
        ("std=1:0:1", ManifestError, "above zero"),
        ("mean=1:2", ManifestError, "one value for all channels, or one for each of 3"),
        ("colour=gray,mean=1:2:3", ManifestError, "one for each of 1"),
        ("colour=yuv", ManifestError, "'rgb', 'bgr' or 'gray'"),
        ("layout=chw", ManifestError, "'nchw' or 'nhwc'"),
        ("pad=300", ManifestError, "less than or equal to 255"),
        ("dtype=int8", ManifestError, "dtype"),
    ],
)
def test_mistakes_in_preprocess(tree, change, error, says):
    with pytest.raises(error, match=says):
        load_dataset(write(tree, MINIMAL + FULL_PREPROCESS), "val", preprocess=change)


def test_addresses_keep_a_place_for_remote_storage():
    assert join_address("s3://bucket/set/", "a/b.png") == "s3://bucket/set/a/b.png"
    assert join_address("/base", "gs://x/y.png") == "gs://x/y.png"
    assert join_address("/base", "a/b.png") == "/base/a/b.png"


def test_the_documented_example_is_valid(repository, tmp_path):
    example = (repository / "docs/manifests.md").read_text(encoding="utf-8").split("```yaml")[1].split("```")[0]
    image = tmp_path / "leftImg8bit/val/ulm/ulm_1_leftImg8bit.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(b"")
    data = load_dataset(write(tmp_path, example), "val", root=str(tmp_path))
    assert data.records[0].label == f"{tmp_path}/gtFine/val/ulm/ulm_1_gtFine_labelIds.png"
    assert dict(data.records[0].group) == {"city": "ulm"}
    assert data.label_map == {"7": 0, "26": 1, "4": -1}
    assert require_preprocess(data).size == (512, 1024)


SHIPPED = {
    "camvid": (11, "images/val/0016E5_1.jpg", "labels/val/0016E5_1.png"),
    "cityscapes": (
        19,
        "leftImg8bit/val/ulm/ulm_000000_000019_leftImg8bit.png",
        "gtFine/val/ulm/ulm_000000_000019_gtFine_labelIds.png",
    ),
    "ade20k": (150, "images/validation/ADE_val_1.jpg", "annotations/validation/ADE_val_1.png"),
    "voc2012": (21, "JPEGImages/2007_000033.jpg", "SegmentationClass/2007_000033.png"),
    "bdd100k": (19, "images/10k/val/7d-1.jpg", "labels/sem_seg/masks/val/7d-1.png"),
    "mapillary": (65, "validation/images/a_b.jpg", "validation/v1.2/labels/a_b.png"),
    "coco-stuff": (171, "images/val2017/000000000139.jpg", "annotations/val2017/000000000139.png"),
}


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_manifests_fit_the_usual_layout(name, tmp_path):
    count, image, label = SHIPPED[name]
    (tmp_path / image).parent.mkdir(parents=True)
    (tmp_path / image).write_bytes(b"")
    (tmp_path / "ImageSets/Segmentation").mkdir(parents=True)
    (tmp_path / "ImageSets/Segmentation/val.txt").write_text("2007_000033\n")
    data = load_dataset(name, "val", root=str(tmp_path))
    assert (data.name, keys(data), len(data.classes.names)) == (name, [image], count)
    assert data.records[0].label == f"{tmp_path}/{label}"
    assert len(set(data.classes.colours)) == count
    assert LabelReader(data)
    with pytest.raises(ManifestError, match="--root"):
        load_dataset(name, "train", root=str(tmp_path / "elsewhere"))


def test_shipped_label_values(tmp_path):
    """Values whose class is published: COCO-Stuff stores id - 1 (90 banner, 181 wood), ADE20K class + 1."""
    (tmp_path / "label.png").write_bytes(png([[0, 90, 91, 181, 11, 255, 150]]))
    expected = {
        "coco-stuff": [0, 255, 80, 170, 255, 255, 139],
        "ade20k": [255, 89, 90, 255, 10, 255, 149],
    }
    for name, ids in expected.items():
        _, image, _ = SHIPPED[name]
        (tmp_path / image).parent.mkdir(parents=True)
        (tmp_path / image).write_bytes(b"")
        data = load_dataset(name, "val", root=str(tmp_path))
        label = LabelReader(data).read(replace(data.records[0], label=str(tmp_path / "label.png")))
        assert label.ids.tolist() == [ids]
    assert load_dataset("coco-stuff", "val", root=str(tmp_path)).classes.names[80] == "banner"


def test_shipped_manifests_are_found():
    assert set(SHIPPED) <= set(shipped_manifests())
