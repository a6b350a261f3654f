"""Progress on standard error: a live bar on a terminal, plain lines with the time left elsewhere."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from calib.types.progress import Task

if TYPE_CHECKING:
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

PLAIN_INTERVAL_S = 10.0


class PlainTask:
    """Counts steps and prints a line every ten seconds and at the end."""

    def __init__(self, label: str, total: int, stream: TextIO) -> None:
        self._label, self._total, self._stream = label, total, stream
        self._done = 0
        self._started = self._printed = time.monotonic()
        self._lock = threading.Lock()

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        with self._lock:
            self._done += steps
            now = time.monotonic()
            if now - self._printed >= PLAIN_INTERVAL_S and self._done < self._total:
                self._printed = now
                self._print(now)

    def finish(self) -> None:
        """Print the closing line."""
        spent = time.monotonic() - self._started
        _write_line(self._stream, f"{self._label}: {self._done}/{self._total} in {spent:.1f} s")

    def _print(self, now: float) -> None:
        left = (now - self._started) / max(self._done, 1) * (self._total - self._done)
        _write_line(self._stream, f"{self._label}: {self._done}/{self._total}, {left:.0f} s left")


class PlainProgress:
    """Progress for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Open a task; its closing line is printed only if the block ends well."""
        task = PlainTask(label, total, self._stream)
        yield task
        task.finish()

    def note(self, text: str) -> None:
        """Print one line."""
        _write_line(self._stream, text)

    def warn(self, text: str) -> None:
        """Print one warning line."""
        self.note(f"warning: {text}")


class RichTask:
    """A bar of a rich progress display."""

    def __init__(self, bars: Bars, number: TaskID) -> None:
        self._bars, self._number = bars, number

    def advance(self, steps: int = 1) -> None:
        """Count finished steps."""
        self._bars.advance(self._number, steps)


class RichProgress:
    """Progress for a terminal; a task inside another is a further bar of the same display."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True)
        self._bars: Bars | None = None

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Open a task as a bar with the time left."""
        with self._display() as bars:
            yield RichTask(bars, bars.add_task(label, total=total))

    @contextmanager
    def _display(self) -> Iterator[Bars]:
        """Hand out the display that is open, or open one: a terminal has room for one at a time."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._bars is not None:
            yield self._bars
            return
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=self._console) as bars:
            self._bars = bars
            try:
                yield bars
            finally:
                self._bars = None

    def note(self, text: str) -> None:
        """Print one line."""
        self._console.print(text, markup=False, highlight=False)

    def warn(self, text: str) -> None:
        """Print one warning line."""
        self._console.print(f"warning: {text}", style="yellow", markup=False, highlight=False)


class SilentProgress:
    """Progress for ``--quiet`` and for callers from Python: warnings only."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    @contextmanager
    def task(self, label: str, total: int) -> Iterator[Task]:
        """Open a task nobody watches."""
        del label, total
        yield SilentTask()

    def note(self, text: str) -> None:
        """Drop the line."""

    def warn(self, text: str) -> None:
        """Print one warning line."""
        _write_line(self._stream or sys.stderr, f"warning: {text}")


class SilentTask:
    """Counts nothing."""

    def advance(self, steps: int = 1) -> None:
        """Do nothing."""


def choose_progress(*, quiet: bool) -> PlainProgress | RichProgress | SilentProgress:
    """Pick the progress display that fits standard error."""
    if quiet:
        return SilentProgress()
    return RichProgress() if sys.stderr.isatty() else PlainProgress(sys.stderr)


def _write_line(stream: TextIO, text: str) -> None:
    """Write a line; a log that nobody reads any more must not end the work."""
    with contextlib.suppress(OSError, ValueError):
        stream.write(f"{text}\n")
        stream.flush()
