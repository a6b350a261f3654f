"""The check names every file that cannot be used, and every oddity of those that can."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from calib.edges.progress import SilentProgress
from calib.errors import ManifestError
from calib.jobs.manifest_check import check_manifest
from tests.datasets import CITYSCAPES, write_coco
from tests.pictures import HTML, chunk, exif_block, gradient, jpeg, png

MANIFEST = """\
name: odd
splits:
  train: {images: "train/*", labels: "labels/{stem}.png"}
classes: CLASSES
ignore_index: 255
preprocess: {colour: rgb, size: keep, scale: 1/255, mean: 0, std: 1}
"""
IMAGE = gradient(6, 8)
LABEL = np.arange(48).reshape(6, 8) % 3


class Set:
    """A data set under construction."""

    def __init__(self, folder, classes="[a, b, c]", manifest=MANIFEST):
        self.folder = folder
        self.path = folder / "set.yaml"
        self.path.write_text(manifest.replace("CLASSES", classes))
        self.add("good")

    def add(self, name, image=None, label=None, suffix=".png", label_suffix=".png", split="train"):
        shade = IMAGE.copy()
        shade[0, 0] = sum(name.encode()) % 256, len(name), 0  # no two images are the same file
        self.write(f"{split}/{name}{suffix}", png(shade) if image is None else image)
        self.write(f"labels/{name}{label_suffix}", png(LABEL) if label is None else label)

    def write(self, name, data):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)

    def check(self, **options):
        return check_manifest(
            str(self.path), options.get("split"), options.get("root"), options.get("workers"), SilentProgress()
        )


@pytest.fixture
def odd(tmp_path):
    return Set(tmp_path)


def found(result, code):
    return [finding for finding in result.findings if finding.code == code]


def test_a_clean_set_has_no_findings(odd):
    result = odd.check()
    assert result.findings == ()
    assert result.to_json()["splits"]["train"] == {
        "images": 1,
        "usable_images": 1,
        "labels": 1,
        "usable_labels": 1,
        "image_kinds": {"png rgb": 1},
        "label_kinds": {"png gray": 1},
        "sizes": {"6x8": 1},
        "rotated": {"applied": 0, "kept": 0},
        "class_pixels": {"a": 16, "b": 16, "c": 16, "void": 0},
    }


@pytest.mark.parametrize(
    ("image", "says"),
    [(HTML, "HTML page"), (b"", "empty file"), (png(IMAGE)[:60], "cut off"), (jpeg(IMAGE)[:200], "JPEG|cut off")],
)
def test_unusable_images_are_named_with_the_reason(odd, image, says):
    odd.add("bad", image)
    result = odd.check()
    (finding,) = found(result, "unusable-image")
    assert (finding.severity, finding.split, finding.file) == ("error", "train", "train/bad.png")
    assert any(part in finding.message for part in says.split("|"))
    assert finding.remedy
    assert result.to_json()["usable"] is False
    assert result.to_json()["splits"]["train"]["usable_images"] == 1


def test_holes_in_jpeg_data_are_errors_and_junk_is_a_warning(odd):
    whole = jpeg(np.random.default_rng(0).integers(0, 255, (6, 8, 3)))
    wide = jpeg(np.random.default_rng(0).integers(0, 255, (60, 80, 3)))
    odd.add("junk", whole[:-2] + b"\x12\x34\x56" + whole[-2:])
    odd.add("hole", wide[: len(wide) // 2] + wide[-2:])
    result = odd.check()
    (junk,) = found(result, "extraneous-bytes")
    assert (junk.severity, junk.file) == ("warning", "train/junk.png")
    assert junk.message.startswith("3 bytes")
    (hole,) = found(result, "unusable-image")
    assert hole.file == "train/hole.png"
    assert "of it; the rest would be filled in" in hole.message


def test_lossy_labels_show_their_values(odd):
    odd.add("lossy", label=jpeg(LABEL * 100))
    (finding,) = found(odd.check(), "unusable-label")
    assert finding.file.endswith("labels/lossy.png")
    assert "lossy JPEG file with values" in finding.message
    assert "%" in finding.message


def test_foreign_ids_are_named_with_file_and_pixels(odd):
    odd.add("foreign", label=png(np.where(LABEL == 2, 77, LABEL)))
    (finding,) = found(odd.check(), "foreign-ids")
    assert finding.file.endswith("labels/foreign.png")
    assert "77 (16 pixels)" in finding.message


def test_size_mismatch(odd):
    odd.add("wide", png(gradient(6, 9)))
    (finding,) = found(odd.check(), "size-mismatch")
    assert (finding.file, finding.message) == ("train/wide.png", "image 6x9, label 6x8")


def test_exif_choices_are_reported_per_file(odd):
    block = chunk(b"eXIf", exif_block(6))
    odd.add("kept", png(IMAGE, extra=block))
    odd.add("turned", png(gradient(8, 6), extra=block))
    result = odd.check()
    kept, turned = found(result, "exif-orientation")
    assert (kept.file, kept.severity) == ("train/kept.png", "info")
    assert "not applied: only the stored layout has the label's size" in kept.message
    assert turned.message == "EXIF orientation 6, applied"
    assert result.to_json()["splits"]["train"]["rotated"] == {"applied": 1, "kept": 1}
    assert not found(result, "size-mismatch")


def test_missing_and_unused_labels(odd):
    odd.add("lonely")
    (odd.folder / "labels/lonely.png").unlink()
    odd.write("labels/nobody.png", png(LABEL))
    result = odd.check()
    (missing,) = found(result, "missing-label")
    assert (missing.severity, missing.file.endswith("labels/lonely.png")) == ("error", True)
    (unused,) = found(result, "unused-label")
    assert (unused.severity, unused.file) == ("warning", "labels/nobody.png")


def test_label_ids_where_train_ids_were_meant(tmp_path):
    odd = Set(tmp_path, str(list(CITYSCAPES)))
    odd.add("ids", label=png(np.where(LABEL == 1, 26, LABEL)))
    (finding,) = found(odd.check(), "label-ids")
    assert "label_format: cityscapes" in finding.remedy


def test_a_photo_as_label_is_summarised(tmp_path):
    odd = Set(tmp_path, "[{name: a, colour: [0, 0, 0]}]", MANIFEST + "label_format: rgb\n")
    odd.write("labels/good.png", png(np.random.default_rng(0).integers(0, 256, (6, 8, 3))))
    (finding,) = found(odd.check(), "foreign-ids")
    assert finding.message.endswith("and 40 more")


def test_train_ids_where_label_ids_were_meant(tmp_path):
    odd = Set(tmp_path, str(list(CITYSCAPES)), MANIFEST + "label_format: cityscapes\n")
    odd.add("ids", label=png(np.where(LABEL == 1, 255, LABEL)))
    (finding,) = found(odd.check(), "label-note")
    assert finding.file.endswith("labels/ids.png")
    assert "trainIds already" in finding.message


def test_labels_that_start_at_one(odd):
    odd.add("shifted", label=png(LABEL + 1))
    (finding,) = found(odd.check(), "shifted-ids")
    assert "ade20k" in finding.remedy
    assert "ignore_index: 3" in finding.remedy


def test_duplicates_and_overlap_between_splits(tmp_path):
    text = MANIFEST.replace("classes:", '  val: {images: "val/*", labels: "labels/{stem}.png"}\nclasses:')
    odd = Set(tmp_path, manifest=text)
    same = (tmp_path / "train/good.png").read_bytes()
    odd.add("twin", same)
    odd.add("leak", same, split="val")
    result = odd.check()
    (duplicate,) = found(result, "duplicate")
    assert (duplicate.file, duplicate.message) == ("train/twin.png", "the same file as train/good.png")
    (overlap,) = found(result, "split-overlap")
    assert (overlap.file, overlap.message) == ("train/good.png", "also in split val (val/leak.png)")
    assert result.count("error") == 0


def test_modes_and_oddities_are_counted(odd):
    odd.add("gray", png(IMAGE[..., 0]))
    odd.add("alpha", png(np.dstack([IMAGE, IMAGE[..., 0]])))
    odd.add("deep", png(IMAGE.astype(int) * 257, bits=16))
    odd.add("photo", jpeg(IMAGE) + b"junk", suffix=".jpg")
    odd.add("wrong", jpeg(IMAGE, quality=80))
    odd.add("void", label=png(LABEL * 0 + 255))
    result = odd.check()
    assert result.to_json()["splits"]["train"]["image_kinds"] == {
        "jpeg rgb": 2,
        "png rgb": 2,
        "png gray": 1,
        "png rgb16": 1,
        "png rgba": 1,
    }
    assert [finding.file for finding in found(result, "16-bit")] == ["train/deep.png"]
    assert [finding.file for finding in found(result, "trailing-bytes")] == ["train/photo.jpg"]
    assert [finding.file for finding in found(result, "misnamed")] == ["train/wrong.png"]
    assert len(found(result, "all-void")) == 1
    assert result.count("error") == 0


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (("ignore_index: 255", "ignore_index: 1"), "ignored-class"),
        ((', labels: "labels/{stem}.png"', ""), "no-labels"),
        (("preprocess: {colour: rgb, size: keep, scale: 1/255, mean: 0, std: 1}\n", ""), "no-preprocess"),
        (("CLASSES", "[a, b, c, d]"), "absent-class"),
    ],
)
def test_warnings_about_the_manifest(tmp_path, change, code):
    result = Set(tmp_path, manifest=MANIFEST.replace(*change)).check()
    assert [finding.severity for finding in found(result, code)] == ["warning"]


def test_a_list_without_classes_is_checked_for_files_and_sizes(tmp_path):
    odd = Set(tmp_path)
    odd.add("deep", label=png(LABEL + 3000, bits=16))
    odd.add("wide", png(gradient(6, 9)))
    odd.path = tmp_path / "list.csv"
    odd.path.write_text("image,label\n" + "".join(f"train/{n}.png,labels/{n}.png\n" for n in ("deep", "wide", "good")))
    result = odd.check()
    assert result.to_json()["splits"]["list"]["label_kinds"] == {"png gray": 2, "png gray16": 1}
    assert [finding.code for finding in result.findings if finding.severity == "error"] == ["size-mismatch"]


def test_rows_without_label_among_labelled_ones_and_missing_inputs(tmp_path):
    odd = Set(tmp_path)
    odd.add("bare")
    odd.path = tmp_path / "list.csv"
    odd.path.write_text("image,label,input:depth\ntrain/good.png,labels/good.png,depth.npy\ntrain/bare.png,,\n")
    result = odd.check()
    assert [finding.file for finding in found(result, "missing-label")] == ["train/bare.png"]
    assert [finding.message for finding in found(result, "missing-input")] == ["no such file, for input 'depth'"]


def test_coco_findings_name_the_image(tmp_path):
    odd = Set(tmp_path, manifest=MANIFEST.replace("labels/{stem}.png", "coco.json") + "label_format: coco\n")
    path = write_coco(tmp_path / "coco.json", [{"category_id": 2, "segmentation": [[1, 2, 3]]}])
    path.write_text(path.read_text().replace("1.jpg", "good.png"))
    (finding,) = found(odd.check(), "unusable-label")
    assert finding.file == "train/good.png"
    assert "annotation 1 of good.png: expected an even number of coordinates" in finding.message


def test_a_split_that_cannot_be_loaded_does_not_hide_the_others(tmp_path):
    text = MANIFEST.replace("classes:", '  test: {images: "test/*"}\nclasses:')
    odd = Set(tmp_path, manifest=text)
    result = odd.check()
    (finding,) = found(result, "unusable-split")
    assert finding.split == "test"
    assert list(result.splits) == ["train"]
    with pytest.raises(ManifestError):
        odd.check(split="test")
    shutil.rmtree(tmp_path / "train")
    with pytest.raises(ManifestError):
        odd.check()


def test_the_answer_does_not_depend_on_the_workers(odd):
    for index in range(12):
        odd.add(f"n{index}", label=png(np.where(LABEL == 2, index, LABEL)))
    odd.add("bad", HTML)
    answers = {json.dumps(odd.check(workers=workers).to_json()) for workers in (1, 2, 7)}
    assert len(answers) == 1


def test_camvid_is_clean(shared, repository):
    result = check_manifest(str(repository / "data_manifests/camvid.yaml"), "val", None, None, SilentProgress())
    assert result.findings == ()
    summary = result.to_json()["splits"]["val"]
    assert summary["image_kinds"] == {"jpeg rgb": 101}
    assert sum(summary["class_pixels"].values()) == 101 * 360 * 480
