"""The one module that opens files: reading, hashing, and writing that leaves nothing half-written."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from calib.errors import ImageError, OutputError

CHUNK = 1 << 20


def read_bytes(address: str) -> bytes:
    """Read a whole file by its address (a path today; object storage later).

    Raises:
        ImageError: the file is missing, unreadable or a folder.
    """
    try:
        return Path(address).read_bytes()
    except OSError as error:
        raise ImageError(
            address,
            expected="a readable file",
            got=_reason(error),
            remedy="check the path, the manifest's root and the file's permissions",
        ) from error


def sha256_file(path: Path) -> str:
    """Hash a file without holding it in memory; hex digest."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def make_output_folder(path: Path) -> Path:
    """Create an output folder and prove that it can be written.

    Raises:
        OutputError: it cannot be created or written, or is a file.
    """
    with output_errors(path):
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        remove_leftovers(path)
    return path


def remove_leftovers(folder: Path) -> None:
    """Remove the temporary files that a killed process left in a folder; those of a running one stay."""
    for path in folder.glob(".*.tmp"):
        number = path.name.split(".")[-2]
        if number.isdigit() and not _is_running(int(number)):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def output_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of writing below ``path`` into one OutputError."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        raise OutputError(
            str(path),
            expected="a place that can be written",
            got=_reason(error),
            remedy="free some space and run the same command again; finished work is kept"
            if full
            else "choose another output with -o, or change its permissions",
        ) from error


def write_atomic(path: Path, data: bytes) -> None:
    """Write a file under a temporary name beside it, then rename: readers see the old file or the new one.

    Raises:
        OutputError: the folder is read-only or the disk is full; the old file is untouched.
    """
    with output_errors(path), temporary_sibling(path) as temporary:
        with temporary.open("wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)


@contextlib.contextmanager
def temporary_sibling(path: Path) -> Iterator[Path]:
    """Name a temporary file beside ``path`` and remove it if the block leaves it there.

    Raises:
        IsADirectoryError: ``path`` is a folder, ``.`` and ``/`` included.
    """
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's process, or a system without such signals
        return True
    return True


def _reason(error: OSError) -> str:
    return (error.strerror or type(error).__name__).lower()
