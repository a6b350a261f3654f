"""The scan job on files: incremental, resumable, one clear error."""

from __future__ import annotations

import os
from typing import ClassVar

import cv2
import numpy as np
import pytest

from calib.edges.index import read_index
from calib.edges.manifest import load_dataset
from calib.edges.progress import SilentProgress
from calib.errors import ImageError
from calib.jobs import scan as job
from tests.pictures import HTML

MANIFEST = """
name: street
root: {root}
splits: {{train: {{images: "images/*.png"{labels}}}}}
classes: [road, person]
ignore_index: 255
"""


@pytest.fixture
def folder(tmp_path):
    """Ten pictures with labels, and a manifest."""
    rng = np.random.default_rng(0)
    for kind in ("images", "labels"):
        (tmp_path / kind).mkdir()
    for number in range(10):
        cv2.imwrite(str(tmp_path / f"images/{number}.png"), rng.integers(0, 256, (30, 40, 3)).astype(np.uint8))
        cv2.imwrite(str(tmp_path / f"labels/{number}.png"), rng.integers(0, 2, (30, 40)).astype(np.uint8))
    labels = ', labels: "labels/{stem}.png"'
    (tmp_path / "street.yaml").write_text(MANIFEST.format(root=tmp_path, labels=labels))
    (tmp_path / "bare.yaml").write_text(MANIFEST.format(root=tmp_path, labels=""))
    return tmp_path


class CountingSource(job.FileSource):
    """Remembers what was read."""

    read: ClassVar[list[str]] = []

    def load(self, record):
        self.read.append(record.key)
        return super().load(record)


@pytest.fixture(autouse=True)
def counting(monkeypatch):
    CountingSource.read = []
    monkeypatch.setattr(job, "FileSource", CountingSource)


def scan(folder, workers=2, manifest="street.yaml"):
    dataset = load_dataset(str(folder / manifest), "train")
    return job.scan(dataset, folder / "out" / "index.parquet", progress=SilentProgress(), workers=workers)


def reads():
    found, CountingSource.read = sorted(CountingSource.read), []
    return found


def test_scan_writes_what_it_returns(folder):
    result = scan(folder)
    table = read_index(folder / "out" / "index.parquet")
    assert table.keys == result.table.keys == tuple(f"images/{number}.png" for number in range(10))
    assert result.reused == 0
    assert table.columns["labelled"].all()
    assert not list((folder / "out").glob(".*"))


def test_workers_and_repetition_give_the_same_bytes(folder):
    scan(folder, workers=1)
    first = (folder / "out/index.parquet").read_bytes()
    assert scan(folder).reused == 10
    assert (folder / "out/index.parquet").read_bytes() == first
    (folder / "out/index.parquet").unlink()
    scan(folder, workers=7)
    assert (folder / "out/index.parquet").read_bytes() == first


def test_only_what_changed_is_read_again(folder):
    scan(folder)
    reads()
    cv2.imwrite(str(folder / "images/3.png"), np.zeros((30, 40, 3), np.uint8))
    os.utime(folder / "labels/5.png", ns=(1, 1))
    (folder / "images/7.png").unlink()
    cv2.imwrite(str(folder / "images/a.png"), np.zeros((30, 40, 3), np.uint8))
    cv2.imwrite(str(folder / "labels/a.png"), np.zeros((30, 40), np.uint8))
    result = scan(folder)
    assert reads() == ["images/3.png", "images/5.png", "images/a.png"]
    assert len(result.table) == 10
    assert result.table.columns["luma_mean"][3] == 0


def test_other_settings_read_everything_again(folder):
    scan(folder)
    reads()
    text = (folder / "street.yaml").read_text()
    (folder / "street.yaml").write_text(text.replace("ignore_index: 255", "ignore_index: 1"))
    assert scan(folder).reused == 0
    assert len(reads()) == 10


def test_unreadable_files_are_named_in_one_error_and_the_rest_is_kept(folder):
    """A2-22: one bad path in the list."""
    good = (folder / "images/2.png").read_bytes()
    (folder / "images/2.png").write_bytes(HTML)
    (folder / "images/4.png").write_bytes(b"")
    (folder / "labels/6.png").unlink()
    with pytest.raises(ImageError) as caught:
        scan(folder)
    text = str(caught.value)
    assert "3 of 10" in text
    assert "images/2.png: expected" in text
    assert "HTML" in text
    assert "images/4.png" in text
    assert "labels/6.png" in text
    assert len(reads()) == 10
    (folder / "images/2.png").write_bytes(good)
    (folder / "images/4.png").write_bytes(good)
    cv2.imwrite(str(folder / "labels/6.png"), np.zeros((30, 40), np.uint8))
    assert scan(folder).reused == 7
    assert reads() == ["images/2.png", "images/4.png", "images/6.png"]


def test_a_killed_scan_goes_on_where_it_stopped(folder, monkeypatch):
    monkeypatch.setattr(job, "PART", 4)

    plain = CountingSource.load

    class Killed(Exception):
        pass

    def load(self, record):
        if record.key == "images/9.png":
            raise Killed
        return plain(self, record)

    with monkeypatch.context() as patch:
        patch.setattr(CountingSource, "load", load)
        with pytest.raises(Killed):
            scan(folder)
    assert scan(folder).reused == 8
    resumed = (folder / "out/index.parquet").read_bytes()
    (folder / "out/index.parquet").unlink()
    scan(folder)
    assert (folder / "out/index.parquet").read_bytes() == resumed


def test_a_damaged_index_is_scanned_again(folder):
    scan(folder)
    (folder / "out/index.parquet").write_bytes(b"PAR1 half of a file")
    assert scan(folder).reused == 0


def test_a_label_of_another_size_is_an_error(folder):
    cv2.imwrite(str(folder / "labels/1.png"), np.zeros((30, 41), np.uint8))
    with pytest.raises(ImageError, match=r"labels/1.png: expected a label as large as its image, 40 x 30 pixels"):
        scan(folder)


def test_without_labels_image_scores_serve(folder):
    result = scan(folder, manifest="bare.yaml")
    assert not result.table.columns["labelled"].any()
    assert np.isfinite(result.table.columns["luma_mean"]).all()


def test_foreign_values_are_noted(folder):
    cv2.imwrite(str(folder / "labels/1.png"), np.full((30, 40), 9, np.uint8))
    assert any("1 labels hold values outside" in note for note in scan(folder).notes)
