"""One writer a folder: two runs into the same output would undo each other's work."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from calib.edges.files import make_output_folder, output_errors
from calib.errors import OutputError

LOCK = "lock"


@contextlib.contextmanager
def sole_writer(scratch: Path) -> Iterator[None]:
    """Keep other runs out of an output folder while the block runs; a process that dies lets go.

    Where the system knows no such locks (Windows, some network file systems) nothing is kept out.

    Args:
        scratch: folder inside the output folder, for the lock's file and what an interrupted run leaves; created, and
            removed at the end if nothing else is in it.

    Raises:
        OutputError: another run is at work in the folder, or it cannot be written.
    """
    with output_errors(scratch):
        stream = _locked_file(make_output_folder(scratch) / LOCK)
    try:
        yield
    finally:
        if [path.name for path in scratch.glob("*")] == [LOCK]:
            shutil.rmtree(scratch, ignore_errors=True)
        stream.close()


def _locked_file(path: Path) -> IO[str]:
    """Open a file and lock it until it is closed."""
    while True:
        stream = path.open("a+")
        if not _lock(stream):
            with stream:
                stream.seek(0)
                holder = stream.read().strip() or "?"
            raise OutputError(
                str(path.parent.parent),
                expected="a folder that no other run is writing to",
                got=f"one that process {holder} is at work in",
                remedy="wait until it is done, or choose another folder with -o",
            )
        if path.exists() and os.path.samestat(os.fstat(stream.fileno()), path.stat()):
            stream.truncate(0)
            stream.write(f"{os.getpid()}\n")
            stream.flush()
            return stream
        stream.close()  # the run that had it ended, and removed the file in between
        make_output_folder(path.parent)


def _lock(stream: IO[str]) -> bool:
    """Whether the lock could be had; where the system has no such locks, it can."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True
