"""Files: reading, hashing, and writing that leaves nothing half-written."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from calib.edges import files
from calib.errors import ImageError, OutputError

KILOBYTE = 1024


def fail_with(number: int) -> object:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB, where this user may mount one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a small disk needs root")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder that nobody but root may write; root is held back by making it unwritable another way, or skips."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o555)
    if os.access(folder, os.W_OK):
        mounted = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)], capture_output=True, check=False
        )
        if mounted.returncode:
            pytest.skip("root writes everywhere and cannot mount a read-only folder here")
    yield folder
    if os.path.ismount(folder):
        subprocess.run(["umount", str(folder)], check=True)
    folder.chmod(0o755)


def test_what_is_written_is_read_back_and_nothing_else_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.bin"
    files.write_atomic(path, b"first")
    files.write_atomic(path, b"second")
    assert files.read_bytes(str(path)) == b"second"
    assert [each.name for each in tmp_path.iterdir()] == ["out.bin"]


@pytest.mark.parametrize("name", ["with space.txt", "ünï-码.txt", "#50%.txt", "a" * 200])
def test_odd_file_names_are_written(tmp_path: Path, name: str) -> None:
    files.write_atomic(tmp_path / name, b"x")
    assert (tmp_path / name).read_bytes() == b"x"


def test_a_hash_is_that_of_the_content_whatever_its_size(tmp_path: Path) -> None:
    data = bytes(range(256)) * (files.CHUNK // 256) + b"tail"
    (tmp_path / "big").write_bytes(data)
    assert files.sha256_file(tmp_path / "big") == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    path = tmp_path / "ranges.json"
    files.write_atomic(path, b"old")
    monkeypatch.setattr(files.os, "fsync", fail_with(number))
    with pytest.raises(OutputError) as caught:
        files.write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["ranges.json"]
    assert caught.value.place == str(path)
    assert caught.value.got == os.strerror(number).lower()
    assert ("free some space" in caught.value.remedy) == (number in (errno.ENOSPC, errno.EDQUOT))


def test_a_full_disk_is_one_error_and_the_old_file_stays(small_disk: Path) -> None:
    path = small_disk / "statistics.npz"
    files.write_atomic(path, b"old")
    with pytest.raises(OutputError, match="no space left"):
        files.write_atomic(path, bytes(128 * KILOBYTE))
    assert path.read_bytes() == b"old"
    assert [each.name for each in small_disk.iterdir()] == ["statistics.npz"]


def test_a_read_only_folder_is_one_error(read_only: Path) -> None:
    with pytest.raises(OutputError, match="choose another output with -o"):
        files.make_output_folder(read_only)
    with pytest.raises(OutputError):
        files.make_output_folder(read_only / "below")
    with pytest.raises(OutputError):
        files.write_atomic(read_only / "x", b"x")


def test_an_output_folder_is_made_with_those_above_it(tmp_path: Path) -> None:
    folder = files.make_output_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []
    assert files.make_output_folder(folder) == folder


def test_an_output_folder_that_is_a_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"")
    for path in (tmp_path / "taken", tmp_path / "taken" / "below"):
        with pytest.raises(OutputError) as caught:
            files.make_output_folder(path)
        assert caught.value.place == str(path)
    with pytest.raises(OutputError):
        files.write_atomic(tmp_path / "taken" / "x", b"")


@pytest.mark.parametrize("kind", ["missing", "folder", "below a file"])
def test_what_cannot_be_read_is_one_error_that_names_it(tmp_path: Path, kind: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    path = {"missing": tmp_path / "none", "folder": tmp_path, "below a file": tmp_path / "file" / "x"}[kind]
    with pytest.raises(ImageError) as caught:
        files.read_bytes(str(path))
    assert caught.value.place == str(path)


KILLED = """
import os, signal, sys
from pathlib import Path
from calib.edges import files
files.os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
files.write_atomic(Path(sys.argv[1]), b"half")
"""


def test_a_killed_writer_leaves_the_old_file_and_its_leftover_is_swept(tmp_path: Path, repository: Path) -> None:
    path = tmp_path / "index.parquet"
    files.write_atomic(path, b"old")
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    done = subprocess.run([sys.executable, "-c", KILLED, str(path)], env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 2
    files.make_output_folder(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["index.parquet"]


def test_the_temporary_file_of_a_running_writer_and_files_of_others_are_not_swept(tmp_path: Path) -> None:
    kept = [f".x.{os.getpid()}.tmp", ".editor.tmp", "x.999999999.tmp"]
    for name in kept:
        (tmp_path / name).write_bytes(b"")
    files.remove_leftovers(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted(kept)


@pytest.mark.parametrize("path", [Path(), Path("/"), Path("..")])
def test_a_folder_is_not_written_over(path: Path) -> None:
    with pytest.raises(OutputError, match="is a directory"):
        files.write_atomic(path, b"x")
