"""Compiled kernels must work where their machine code cannot be kept."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba.core.caching import FunctionCache

from calib.core.jit import compiled

SCRIPT = "from calib.core.kernels import exponent_for; print(exponent_for(0x3F800000))"


def twice(value: int) -> int:
    return 2 * value


def test_no_writable_folder_costs_time_only(tmp_path: Path) -> None:
    """Source and home folder read-only, as in an installed container: Numba alone refuses to import the module."""
    unwritable = {"NUMBA_CACHE_LOCATOR_CLASSES": "ZipCacheLocator", "HOME": str(tmp_path / "absent")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env={**os.environ, **unwritable}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "-13"), done.stderr


@pytest.mark.parametrize("damaged", ["*.nbc", "*.nb*"])
def test_a_damaged_cache_is_compiled_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, damaged: str) -> None:
    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    assert compiled(twice)(21) == 42
    files = list(tmp_path.rglob(damaged))
    assert files
    for file in files:
        file.write_bytes(b"damaged")
    assert compiled(twice)(21) == 42


def test_a_full_disk_does_not_stop_the_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("numba.core.config.CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(FunctionCache, "save_overload", full)
    function = compiled(twice)
    assert function(21) == 42
    assert function(2.5) == 5.0  # type: ignore[arg-type]
