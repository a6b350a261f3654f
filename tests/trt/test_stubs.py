"""The stubs of TensorRT 10 and 11: code type-checks against both, and the installed TensorRT has what they promise."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.trt.double import make_tensorrt

REMOVED_IN_11 = (
    "IInt8Calibrator", "IInt8EntropyCalibrator2", "IBuilderConfig.int8_calibrator",
    "IBuilderConfig.set_calibration_profile", "ITensor.set_dynamic_range", "ILayer.precision", "BuilderFlag.INT8",
    "BuilderFlag.FP16", "BuilderFlag.OBEY_PRECISION_CONSTRAINTS", "NetworkDefinitionCreationFlag.EXPLICIT_BATCH",
)  # fmt: skip
BOTH = ("buffers", "building", "calibration", "explicit", "library", "runner")


def promised(path: Path) -> Iterator[str]:
    """Dotted names that a stub declares."""

    def members(node: ast.ClassDef, prefix: str) -> Iterator[str]:
        yield prefix
        for item in node.body:
            if isinstance(item, ast.ClassDef):
                yield from members(item, f"{prefix}.{item.name}")
            elif isinstance(item, ast.FunctionDef):
                yield f"{prefix}.{item.name}"
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                yield f"{prefix}.{item.target.id}"

    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield from members(node, node.name)


def stub(repository: Path, major: int) -> Path:
    return repository / f"typings/trt{major}/tensorrt/__init__.pyi"


def test_the_stubs_differ_where_the_versions_do(repository: Path) -> None:
    ten, eleven = (set(promised(stub(repository, major))) for major in (10, 11))
    assert set(REMOVED_IN_11) <= ten
    assert eleven.isdisjoint(REMOVED_IN_11)
    assert eleven <= ten


@pytest.mark.tensorrt
def test_the_installed_tensorrt_has_everything_its_stub_promises(repository: Path) -> None:
    if importlib.util.find_spec("tensorrt") is None:
        pytest.skip("needs TensorRT")
    import tensorrt

    major = int(tensorrt.__version__.partition(".")[0])
    assert missing_from(tensorrt, stub(repository, major)) == []


def missing_from(module: Any, path: Path) -> list[str]:
    def has(name: str) -> bool:
        value = module
        for part in name.split("."):
            if part == "__buffer__":
                return True
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True

    return [name for name in promised(path) if not has(name)]


@pytest.mark.parametrize("major", [10, 11])
def test_the_double_has_no_class_that_its_version_lacks(repository: Path, major: int) -> None:
    module = make_tensorrt(f"{major}.1.0.1")
    classes = {name for name in vars(module) if name[:1].isupper() and name != "Network"}
    assert classes <= {name for name in promised(stub(repository, major)) if "." not in name}
    flags = {f"BuilderFlag.{name}" for name in vars(module.BuilderFlag) if name.isupper()}
    assert flags <= set(promised(stub(repository, major)))


def check_types(
    repository: Path, major: int, modules: tuple[str, ...], folder: Path
) -> subprocess.CompletedProcess[str]:
    files = [f"calib/edges/tensorrt/{name}.py" for name in modules]
    environment = {**os.environ, "MYPYPATH": str(stub(repository, major).parent.parent)}
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(folder), *files]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True, check=False)


def test_what_runs_under_11_type_checks_against_11(repository: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("needs mypy")
    done = check_types(repository, 11, BOTH, tmp_path)
    assert done.returncode == 0, done.stdout
    refused = check_types(repository, 11, ("implicit",), tmp_path)
    assert '"IBuilderConfig" has no attribute "int8_calibrator"' in refused.stdout
