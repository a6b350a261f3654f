"""What to say when something other than a :class:`~calib.errors.CalibError` comes up to the command line."""

from __future__ import annotations

import errno
import sys
import tempfile
import traceback

from calib.errors import CalibError, OutputError

FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def describe_system_error(error: MemoryError | OSError) -> CalibError:
    """Say the system's refusal (memory, disk, permissions) as place, expected, got, remedy."""
    if isinstance(error, MemoryError):
        return CalibError(
            "memory",
            expected="enough for this command",
            got=f"none left ({error})" if str(error) else "none left",
            remedy="use fewer --workers or a smaller batch, or close other programs",
        )
    reason = (error.strerror or str(error) or type(error).__name__).lower()
    place = str(error.filename) if error.filename is not None else "the file system"
    if error.errno in FULL:
        remedy = "free some space and run the same command again; finished work is kept"
        return OutputError(place, expected="space to write", got=reason, remedy=remedy)
    remedy = "check that it exists, its permissions and the limits of your account, then run the same command again"
    return CalibError(place, expected="a file that can be used", got=reason, remedy=remedy)


def report_bug(error: BaseException, *, verbose: bool) -> None:
    """Say on stderr that calib failed, where, and where the whole traceback is: in a file, or below under ``-v``."""
    text = "".join(traceback.format_exception(error))
    frames = traceback.extract_tb(error.__traceback__)
    where = f" at {frames[-1].filename}:{frames[-1].lineno}" if frames else ""
    summary = f"{type(error).__name__}: {error}".partition("\n")[0]
    saved = None if verbose else _save(text)
    sys.stderr.write(f"calib: a bug in calib or in a plugin{where}: {summary}\n")
    sys.stderr.write(f"  remedy: report it with the traceback in {saved}\n" if saved else text)


def _save(text: str) -> str | None:
    """Write a traceback to a temporary file that stays; None where even that fails."""
    try:
        with tempfile.NamedTemporaryFile(
            "w", prefix="calib-traceback-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as stream:
            stream.write(text)
            return stream.name
    except OSError:
        return None
