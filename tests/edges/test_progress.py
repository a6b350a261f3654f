"""Progress: lines for logs, bars for terminals, silence for callers."""

from __future__ import annotations

import io
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from calib.edges import progress
from calib.edges.progress import PlainProgress, RichProgress, SilentProgress, choose_progress


class Clock:
    """A clock that moves only when told."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Closed(io.StringIO):
    """A stream whose reader has gone away."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_line_every_ten_seconds_with_the_time_left_and_one_at_the_end(clock: Clock) -> None:
    stream = io.StringIO()
    with PlainProgress(stream).task("collect", 10) as task:
        for _ in range(10):
            clock.now += 4.0
            task.advance()
    assert stream.getvalue().splitlines() == [
        "collect: 3/10, 28 s left",
        "collect: 6/10, 16 s left",
        "collect: 9/10, 4 s left",
        "collect: 10/10 in 40.0 s",
    ]


def test_no_closing_line_when_the_work_fails() -> None:
    stream = io.StringIO()

    def work() -> None:
        with PlainProgress(stream).task("collect", 2) as task:
            task.advance()
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert stream.getvalue() == ""


def test_an_empty_task_ends_well() -> None:
    stream = io.StringIO()
    with PlainProgress(stream).task("scan", 0):
        pass
    assert re.fullmatch(r"scan: 0/0 in \d+\.\d s\n", stream.getvalue())


def test_steps_of_many_threads_are_all_counted() -> None:
    stream, start = io.StringIO(), threading.Barrier(8)
    with PlainProgress(stream).task("scan", 8000) as task:

        def work() -> None:
            start.wait()
            for _ in range(1000):
                task.advance()

        with ThreadPoolExecutor(8) as pool:
            for future in [pool.submit(work) for _ in range(8)]:
                future.result()
    assert stream.getvalue().startswith("scan: 8000/8000")


def test_notes_and_warnings_are_lines() -> None:
    stream = io.StringIO()
    display = PlainProgress(stream)
    display.note("7 images")
    display.warn("3 are dark")
    assert stream.getvalue() == "7 images\nwarning: 3 are dark\n"


def test_silence_keeps_warnings_only() -> None:
    stream = io.StringIO()
    display = SilentProgress(stream)
    display.note("7 images")
    with display.task("scan", 1) as task:
        task.advance()
    display.warn("3 are dark")
    assert stream.getvalue() == "warning: 3 are dark\n"


@pytest.mark.parametrize("make", [PlainProgress, SilentProgress])
def test_a_log_that_nobody_reads_does_not_end_the_work(make: type[PlainProgress | SilentProgress]) -> None:
    display, done = make(Closed()), 0
    display.note("x")
    display.warn("x")
    with display.task("scan", 1) as task:
        task.advance()
        done += 1
    assert done == 1


def test_a_terminal_shows_a_task_inside_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    display = RichProgress()
    with display.task("build", 2) as outer:
        with display.task("scan", 5) as inner:
            inner.advance(5)
        display.warn("[3] are dark")
        outer.advance(2)
    with display.task("write", 1) as task:
        task.advance()
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    for expected in ("build", "2/2", "scan", "5/5", "warning: [3] are dark", "write"):
        assert expected in shown


def test_the_display_fits_the_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(choose_progress(quiet=True), SilentProgress)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert isinstance(choose_progress(quiet=False), PlainProgress)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert isinstance(choose_progress(quiet=False), RichProgress)
