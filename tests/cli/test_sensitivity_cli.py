"""``calib sensitivity`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from calib.cli.app import run
from tests.smallbuild import make_build


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_build(tmp_path_factory.mktemp("build"), calibrators=("minmax",))


def call(build: Path, output: Path, *more: str) -> int:
    return run(
        [
            "sensitivity",
            str(build),
            "--data",
            str(build.parent / "set.yaml"),
            "--split",
            "val",
            "-o",
            str(output),
            *more,
        ]
    )


def test_text_names_the_first_and_the_report(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(build, tmp_path) == 0
    text = capsys.readouterr().out
    document = json.loads((tmp_path / "sensitivity.json").read_text())
    assert f"  1. {document['units'][0]['name']}" in text
    assert str(tmp_path / "sensitivity.html") in text
    assert "all together" in text


def test_json_alone_on_stdout(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert call(build, tmp_path, "--json", "-q", "--unit", "tensor", "--mode", "without", "-n", "all") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["network"]["mode"] == "without"
    assert document == json.loads((tmp_path / "sensitivity.json").read_text())


@pytest.mark.parametrize(
    ("more", "place"),
    [
        (["-n", "few"], "--num-images"),
        (["--mode", "solo"], "--mode"),
        (["--unit", "block"], "--unit"),
        (["--rank-by", "luck"], "--rank-by"),
        (["--calibrator", "entropy"], "--calibrator"),
        (["--top", "0"], "--top"),
    ],
)
def test_bad_usage_exits_with_two(build: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], more, place: str):
    assert call(build, tmp_path, *more) == 2
    assert place in capsys.readouterr().err
