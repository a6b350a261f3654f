import os
from pathlib import Path

import cv2
import numpy as np
import pytest

from calib.demo import dataset
from calib.demo.dataset import SPLITS, manifest_text, plan_scenes, plan_split, write_dataset
from calib.demo.light import light_group
from calib.edges.progress import SilentProgress
from calib.errors import OutputError

REPOSITORY = Path(__file__).resolve().parents[2]
FEW = {"calib": {"day": 2, "dusk": 1}, "val": {"night": 2}}


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(dataset, "SPLITS", FEW)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_two_runs_write_the_same_bytes_whatever_the_workers(few, tmp_path):
    write_dataset(tmp_path / "one", SilentProgress(), workers=1)
    write_dataset(tmp_path / "two", SilentProgress(), workers=3)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    names = set(contents(tmp_path / "one"))
    assert {"images/calib/day_0001.jpg", "labels/val/night_0001.png", "demo.yaml"} <= names
    assert len(names) == 2 * 5 + 2


def test_files_hold_what_was_drawn(few, tmp_path):
    write_dataset(tmp_path, SilentProgress())
    scene = plan_scenes(FEW["val"], stream=2)[1].draw()
    label = cv2.imread(str(tmp_path / "labels/val/night_0001.png"), cv2.IMREAD_UNCHANGED)
    image = cv2.imread(str(tmp_path / "images/val/night_0001.jpg"), cv2.IMREAD_COLOR)[..., ::-1]
    np.testing.assert_array_equal(label, scene.label)
    assert np.abs(image.astype(int) - scene.image).mean() < 8.0


def test_finished_scenes_are_kept(few, tmp_path):
    write_dataset(tmp_path, SilentProgress())
    expected = contents(tmp_path)
    lost, kept = tmp_path / "images/calib/day_0000.jpg", tmp_path / "images/calib/day_0001.jpg"
    lost.unlink()
    os.utime(kept, (1, 1))
    write_dataset(tmp_path, SilentProgress())
    assert contents(tmp_path) == expected
    assert kept.stat().st_mtime == 1


def test_scenes_of_another_version_are_drawn_anew(few, tmp_path, monkeypatch):
    write_dataset(tmp_path, SilentProgress())
    expected = contents(tmp_path)["images/calib/day_0001.jpg"]
    (tmp_path / "images/calib/day_0001.jpg").write_bytes(b"old")
    monkeypatch.setattr(dataset, "GENERATOR_VERSION", dataset.GENERATOR_VERSION + 1)
    write_dataset(tmp_path, SilentProgress())
    assert contents(tmp_path)["images/calib/day_0001.jpg"] == expected


def test_a_file_in_the_way_is_one_clear_error(few, tmp_path):
    (tmp_path / "images").write_text("in the way")
    with pytest.raises(OutputError, match="images"):
        write_dataset(tmp_path, SilentProgress())


def test_the_plan_has_the_promised_sizes_and_lights():
    assert len(plan_split("calib")) == 240
    assert len(plan_split("val")) == 80
    for split, counts in SPLITS.items():
        planned = plan_split(split)
        assert len({scene.name for scene in planned}) == len(planned)
        assert all(light_group(scene.level) == scene.group == scene.name.split("_")[0] for scene in planned)
        assert {group: sum(scene.group == group for scene in planned) for group in counts} == counts


def test_splits_share_no_scene():
    seeds = [scene.seed for split in SPLITS for scene in plan_split(split)]
    training = [scene.seed for scene in plan_scenes({"day": 50, "night": 50}, stream=1000)]
    assert len(set(seeds + training)) == len(seeds) + len(training)


def test_the_shipped_manifest_is_the_written_one():
    shipped = (REPOSITORY / "data_manifests" / "demo.yaml").read_text(encoding="utf-8")
    assert shipped == manifest_text("../demo-out/data")
