"""One writer a folder: two runs into the same output would undo each other's work."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from calib.edges.files import make_output_folder, output_errors
from calib.errors import OutputError

LOCK = "lock"


@contextlib.contextmanager
def sole_writer(folder: Path, scratch: Path) -> Iterator[None]:
    """Hold an output folder for this run alone; the hold ends with the process, however it ends.

    Where the system knows no such locks (Windows, some network file systems) nothing is held.

    Args:
        folder: what is held, for messages.
        scratch: folder for the lock's file; created, and removed at the end if nothing else is in it.

    Raises:
        OutputError: another run holds the folder, or it cannot be written.
    """
    make_output_folder(scratch)
    path = scratch / LOCK
    with output_errors(path):
        stream = path.open("ab")
    with stream:
        if not _hold(stream):
            raise OutputError(
                str(folder),
                expected="a folder that no other run writes into",
                got="one that a running command holds",
                remedy="wait for it, or choose another output with -o",
            )
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # what is left there belongs to an interrupted run
                path.unlink()
                scratch.rmdir()


def _hold(stream: IO[bytes]) -> bool:
    """Take the lock; False where another has it."""
    try:
        import fcntl
    except ImportError:
        return True
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the file system has no locks
        return True
    return True
