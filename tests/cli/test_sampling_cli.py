"""``calib scan``, ``sample`` and ``samplers`` as a user runs them."""

from __future__ import annotations

import json

import cv2
import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from calib.cli import sample, samplers, scan
from calib.errors import CalibError
from calib.jobs.sample import read_selection


@pytest.fixture
def folder(tmp_path):
    """Twelve pictures, half of them dark, without labels."""
    rng = np.random.default_rng(0)
    for number in range(12):
        top = 25 if number < 6 else 220
        cv2.imwrite(str(tmp_path / f"{number:02}.png"), rng.integers(0, top, (48, 64, 3)).astype(np.uint8))
    (tmp_path / "set.yaml").write_text(f'name: set\nroot: {tmp_path}\nsplits: {{all: {{images: "*.png"}}}}\n')
    return tmp_path


def run(*arguments):
    app = typer.Typer()
    app.command("scan")(scan.command)
    app.command("sample")(sample.command)
    app.command("samplers")(samplers.command)
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_scan_then_sample(folder):
    index, selection, sheet = folder / "i.parquet", folder / "s.jsonl", folder / "s.png"
    scanned = json.loads(run("scan", folder / "set.yaml", "-o", index, "--json", "-q"))
    assert (scanned["images"], scanned["read"], scanned["dark"], scanned["flat"]) == (12, 12, 6, 0)
    arguments = ("--sampler", "dark-regions:fraction=1.0,diversity=0", "-n", 5, "-o", selection, "--sheet", sheet)
    sampled = json.loads(run("sample", index, *arguments, "--json", "-q"))
    assert (sampled["images"], sampled["population"]) == (5, 12)
    lines = [json.loads(line) for line in selection.read_text().splitlines()]
    assert [list(line) for line in lines] == [["image", "sha256", "sampler", "score", "rank"]] * 5
    assert [line["rank"] for line in lines] == [1, 2, 3, 4, 5]
    assert all(line["image"] < "06.png" for line in lines)
    assert [item.image for item in read_selection(selection)] == [line["image"] for line in lines]
    assert cv2.imread(str(sheet)).shape[1] > 300


def test_the_same_seed_gives_the_same_bytes(folder):
    run("scan", folder / "set.yaml", "-o", folder / "i.parquet", "-q")
    for name in "ab":
        out = ("-o", folder / f"{name}.jsonl", "--sheet", folder / f"{name}.png")
        run("sample", folder / "i.parquet", "-n", 6, "--sampler", "random", "--seed", 3, *out, "-q")
    assert (folder / "a.jsonl").read_bytes() == (folder / "b.jsonl").read_bytes()
    assert (folder / "a.png").read_bytes() == (folder / "b.png").read_bytes()


def test_pictures_may_have_moved(folder, tmp_path_factory):
    run("scan", folder / "set.yaml", "-o", folder / "i.parquet", "-q")
    moved = tmp_path_factory.mktemp("moved")
    for path in folder.glob("*.png"):
        path.rename(moved / path.name)
    for name, root in (("gone", ()), ("found", ("--root", moved))):
        out = ("-o", folder / "s.jsonl", "--sheet", folder / f"{name}.jpg.png")
        run("sample", folder / "i.parquet", "-n", 4, *out, *root, "-q")
    gone, found = (cv2.imread(str(folder / f"{name}.jpg.png")) for name in ("gone", "found"))
    assert gone.std() < found.std()


@pytest.mark.parametrize("spec", ["dakr-regions", "random:x=1", "mix:random=-1"])
def test_bad_samplers_are_usage_errors(folder, spec):
    run("scan", folder / "set.yaml", "-o", folder / "i.parquet", "-q")
    with pytest.raises(CalibError):
        run("sample", folder / "i.parquet", "-n", 4, "--sampler", spec, "-o", folder / "s.jsonl")


def test_samplers_are_listed_with_their_parameters():
    listed = {item["name"]: item for item in json.loads(run("samplers", "--json"))["samplers"]}
    assert {"random", "stratified", "dark-regions", "small-objects", "mix"} <= set(listed)
    assert "fraction" in {parameter["name"] for parameter in listed["dark-regions"]["parameters"]}
    assert "dark-regions" in run("samplers")
