"""The built wheel holds what an installed calib needs, and works away from the source tree."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.imports import PACKAGES

IGNORED = ("__pycache__", ".nbi", ".nbc")


def package_files(repository: Path) -> set[str]:
    """Every file of the three packages, as a wheel names it."""
    found = [path for package in PACKAGES for path in (repository / package).rglob("*") if path.is_file()]
    names = {path.relative_to(repository).as_posix() for path in found}
    return {name for name in names if not any(part in name for part in IGNORED)}


@pytest.fixture(scope="module")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source tree, built without network."""
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("needs hatchling to build the wheel")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=repository, check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that holds the wheel's files and nothing of the source tree."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def run_installed(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-P", "-m", "calib", *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_holds_every_file_of_the_packages(wheel: Path, repository: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert package_files(repository) <= names
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    manifests = {f"calib/data/manifests/{path.name}" for path in (repository / "data_manifests").iterdir()}
    assert manifests
    assert manifests <= names
    assert "calib/data/constraints.txt" in names
    assert not {name for name in names if name.startswith("tests/")}


def test_the_wheel_holds_the_licence_and_the_command(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (points,) = [name for name in archive.namelist() if name.endswith("entry_points.txt")]
    assert "calib = calib.cli:main" in archive.read(points).decode()
    assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_the_installed_command_works_from_an_empty_folder(installed: Path, tmp_path: Path) -> None:
    done = run_installed(installed, tmp_path, "doctor", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["usable"]
    for verb in ("samplers", "calibrators"):
        listed = run_installed(installed, tmp_path, verb, "--json")
        assert json.loads(listed.stdout)[verb], listed.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_installed_package_knows_the_tested_versions(installed: Path, repository: Path) -> None:
    script = "from calib.edges.machine import tested_versions; print(len(tested_versions()))"
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], env=environment, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) == len((repository / "constraints.txt").read_text().splitlines())
