"""``calib manifest check``: exit codes, JSON on stdout alone, readable text."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from calib.cli.manifest import app
from calib.errors import ManifestError
from tests.jobs.test_manifest_check import Set
from tests.pictures import HTML

ROOT = typer.Typer()
ROOT.add_typer(app, name="manifest")


def run(*arguments):
    return CliRunner().invoke(ROOT, ["manifest", "check", *map(str, arguments)])


def test_a_usable_set_exits_with_0(tmp_path):
    result = run(Set(tmp_path).path, "--quiet")
    assert result.exit_code == 0
    assert "images   1 of 1 usable: 1 png rgb" in result.stdout
    assert result.stdout.rstrip().endswith("set.yaml: usable; 0 errors, 0 warnings")


def test_an_unusable_file_exits_with_1_and_is_named(tmp_path):
    odd = Set(tmp_path)
    odd.add("bad", HTML)
    result = run(odd.path, "--quiet")
    assert result.exit_code == 1
    assert "error unusable-image (1)" in result.stdout
    assert "train: train/bad.png: expected a picture, got an HTML page" in result.stdout
    assert "remedy: replace the file" in result.stdout


def test_every_error_is_listed_and_information_is_shortened(tmp_path):
    odd = Set(tmp_path)
    for index in range(9):
        odd.add(f"bad{index}", HTML)
        odd.write(f"labels/unused{index}.png", b"")
    text = run(odd.path, "--quiet").stdout
    assert all(f"train/bad{index}.png" in text for index in range(9))
    assert "warning unused-label (9)" in text
    assert "… and 4 more; --json lists all" in text


def test_json_is_alone_on_stdout(tmp_path):
    odd = Set(tmp_path)
    odd.add("bad", HTML)
    result = run(odd.path, "--json", "--workers", 2)
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert (document["schema"], document["usable"], document["errors"]) == (1, False, 1)
    assert document["findings"][0]["file"] == "train/bad.png"
    assert "checking train: 2/2" in result.stderr


@pytest.mark.parametrize("arguments", [("missing.yaml",), ("camvid", "--split", "tset")])
def test_bad_input_is_a_manifest_error(arguments):
    result = run(*arguments)
    assert isinstance(result.exception, ManifestError)
    assert result.exception.exit_code == 2


def test_the_module_is_light_at_import():
    code = (
        "import sys, calib.cli.manifest; print([m for m in ('numpy', 'cv2', 'pydantic', 'yaml') if m in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
