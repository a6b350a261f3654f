"""One writer a folder, and no trace of the lock afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from calib.edges import folderlock
from calib.edges.folderlock import LOCK, sole_writer
from calib.errors import OutputError

HOLDER = """
import sys
from pathlib import Path
from calib.edges.folderlock import sole_writer
folder = Path(sys.argv[1])
with sole_writer(folder / "scratch"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_second_writer_is_refused_until_the_first_is_done(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with sole_writer(scratch):
        with pytest.raises(OutputError, match=f"one that process {os.getpid()} is at work in"):
            sole_writer(scratch).__enter__()
        assert (scratch / LOCK).exists()
    assert not scratch.exists()
    with sole_writer(scratch):
        (scratch / "journal").write_text("work of an interrupted run")
    assert (scratch / "journal").exists()


def test_the_hold_of_a_killed_process_ends_with_it(tmp_path: Path, repository: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(repository)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(OutputError):
            sole_writer(tmp_path / "scratch").__enter__()
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    with sole_writer(tmp_path / "scratch"):
        assert (tmp_path / "scratch" / LOCK).exists()
    assert not (tmp_path / "scratch").exists()


def test_a_system_without_locks_holds_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with sole_writer(tmp_path / "scratch"), (tmp_path / "scratch" / LOCK).open() as stream:
        assert folderlock._lock(stream)
