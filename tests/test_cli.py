"""The command line: exit codes, one message an error, clean output whatever happens to it."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from calib.cli import app as command_line
from calib.cli import common
from calib.cli.app import GROUPS, VERBS, VerbGroup, run
from calib.errors import CalibError, ModelError, OutputError
from calib.types.parameters import Parameter

VERB_NAMES = [name for name, _ in (*VERBS, *GROUPS)]


def app_with(action: Callable[[], Any]) -> typer.Typer:
    """A command line with one verb that does something, one with options, and a group."""
    app = typer.Typer(name="calib", cls=VerbGroup, no_args_is_help=True, add_completion=False)
    group = typer.Typer()

    @app.command("act")
    def act(verbose: common.VerboseFlag = False) -> None:
        del verbose
        action()

    @app.command("take")
    def take(
        model: str,
        workers: Annotated[int | None, typer.Option("--workers", min=1)] = None,
        share: Annotated[float, typer.Option("--share")] = 0.5,
    ) -> None:
        del model, workers, share

    @group.command("show")
    def show(path: Path) -> None:
        del path

    @group.command("diff")
    def diff() -> None:
        pass

    app.add_typer(group, name="cache", cls=VerbGroup)
    return app


def failing(error: BaseException) -> typer.Typer:
    def action() -> None:
        raise error

    return app_with(action)


def run_process(repository: Path, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(repository), **options.pop("env", {})}
    command = [sys.executable, "-m", "calib", *arguments]
    return subprocess.run(command, text=True, env=environment, check=False, **{"capture_output": True, **options})


def test_help_names_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f" {verb} " in shown for verb in VERB_NAMES)


@pytest.mark.parametrize("verb", VERB_NAMES)
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    assert f"calib {verb}" in capsys.readouterr().out
    assert run([verb, "-h"]) == 0


def test_the_version_is_that_of_the_project(repository: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    version = capsys.readouterr().out.split()[1]
    assert f'version = "{version}"' in (repository / "pyproject.toml").read_text()


def test_nothing_at_all_shows_the_help_as_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 2
    assert "Usage: calib" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "place", "expected", "got", "remedy"),
    [
        ("biuld", "calib:", "one of act, take, cache", "'biuld'", "`calib --help`"),
        ("taek", "calib:", "one of", "'taek'", "did you mean `calib take`?"),
        ("cache shwo x", "calib cache:", "one of show, diff", "'shwo'", "did you mean `calib cache show`?"),
        ("take m --worker 3", "calib take:", "an option of calib take", "'--worker'", "did you mean --workers?"),
        ("take m --workers 0", "calib take --workers:", "greater than or equal to 1", "'0'", "`calib take --help`"),
        ("take m --workers two", "calib take --workers:", "a valid integer", "'two'", "`calib take --help`"),
        ("take m --share", "calib take:", "", "option '--share' requires an argument", "--help"),
        ("take", "calib take:", "a value for model", "nothing", "`calib take --help`"),
        ("take m n", "calib take:", "", "unexpected extra argument", "`calib take --help`"),
        ("act --verbose=3", "calib act:", "", "option '--verbose' does not take a value", "--help"),
    ],
)
def test_bad_usage_says_place_expected_got_and_remedy(
    arguments: str, place: str, expected: str, got: str, remedy: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments.split(), app_with(lambda: None)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(place)
    first, second = err.splitlines()
    assert f"expected {expected}" in first
    assert got in first.partition(", got ")[2]
    assert second.startswith("  remedy: ")
    assert remedy in second


def test_an_error_of_calib_is_its_three_parts_and_exit_2(capsys: pytest.CaptureFixture[str]) -> None:
    error = ModelError("net.onnx", expected="an ONNX network", got="an HTML page", remedy="download it again")
    assert run(["act"], failing(error)) == 2
    assert capsys.readouterr().err == (
        "calib: net.onnx: expected an ONNX network, got an HTML page\n  remedy: download it again\n"
    )


@pytest.mark.parametrize("code", [0, 1, 2])
def test_a_verb_chooses_its_exit_code(code: int) -> None:
    assert run(["act"], failing(typer.Exit(code))) == code


@pytest.mark.parametrize("error", [KeyboardInterrupt(), typer.Abort()])
def test_an_interruption_is_130(error: BaseException, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["act"], failing(error)) == 130
    assert "interrupted" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "place", "got"),
    [
        (MemoryError("Unable to allocate 2.00 TiB"), "memory", "Unable to allocate 2.00 TiB"),
        (OSError(errno.ENOSPC, "No space left on device", "/data/out"), "/data/out", "no space left on device"),
        (OSError(errno.EMFILE, "Too many open files"), "the file system", "too many open files"),
        (PermissionError(errno.EACCES, "Permission denied", "/data/x"), "/data/x", "permission denied"),
    ],
)
def test_a_refusal_of_the_system_is_one_message(
    error: BaseException, place: str, got: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["act"], failing(error)) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"calib: {place}: expected ")
    assert got in err
    assert "Traceback" not in err


def test_a_bug_is_one_message_and_its_traceback_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["act"], failing(ZeroDivisionError("division by zero"))) == 70
    err = capsys.readouterr().err
    (saved,) = tmp_path.iterdir()
    assert err.startswith("calib: a bug in calib or in a plugin at ")
    assert "ZeroDivisionError: division by zero" in err
    assert "Traceback" not in err
    assert str(saved) in err
    assert "Traceback (most recent call last)" in saved.read_text()


def test_a_bug_shows_its_traceback_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert run(["act", "-v"], failing(RuntimeError("odd"))) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_bug_is_told_even_where_no_file_can_be_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere/at/all")
    assert run(["act"], failing(RuntimeError("odd"))) == 70
    assert "Traceback (most recent call last)" in capsys.readouterr().err


INTERRUPTED = """
import os, signal, sys, typer
from calib.cli import app
def act():
    os.kill(os.getpid(), getattr(signal, sys.argv[1]))
    signal.pause()
made = typer.Typer(name="calib", cls=app.VerbGroup)
made.command("act")(act)
made.command("other")(lambda: None)
app.make_app = lambda: made
app.main(["act"])
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_a_command_with_130_and_one_line(name: str, repository: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    command = [sys.executable, "-c", INTERRUPTED, name]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=60)
    assert done.returncode == 130
    assert done.stderr == "calib: interrupted; the same command goes on where this one stopped\n"


def test_a_second_signal_ends_at_once() -> None:
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(KeyboardInterrupt):
            command_line._interrupt(signal.SIGTERM, None)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGTERM, before)


def test_a_reader_that_goes_away_is_no_error(repository: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    done = run_process(repository, "calibrators", "--json", capture_output=False, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_standard_output_on_a_full_disk_is_one_message(repository: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = run_process(repository, "calibrators", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr.startswith("calib: standard output: expected to print the result, got no space left\n")
    assert "Traceback" not in done.stderr


def test_any_name_is_printed_in_any_locale(capsys: pytest.CaptureFixture[str]) -> None:
    common.emit({"path": Path("/data/über\udce9.png")}, as_json=True, text="")
    shown = capsys.readouterr().out
    assert shown.isascii()
    assert json.loads(shown) == {"path": "/data/über\udce9.png"}


def test_what_json_cannot_say_becomes_plain() -> None:
    import numpy as np

    document = {
        1: float("nan"),
        "inf": float("inf"),
        "array": np.array([[1, 2]], np.int64),
        "scalar": np.float32(0.5),
        "nan": np.float64("nan"),
        "nested": [{"path": Path("a")}, (True, None, "x")],
    }
    assert common.plain(document) == {
        "1": None,
        "inf": None,
        "array": [[1, 2]],
        "scalar": 0.5,
        "nan": None,
        "nested": [{"path": "a"}, [True, None, "x"]],
    }


def test_the_errors_of_calib_share_one_base_and_exit_code() -> None:
    assert issubclass(OutputError, CalibError)
    assert {kind.exit_code for kind in [CalibError, *CalibError.__subclasses__()]} == {2}


def describe_light(
    table: object,
    share: Annotated[float, Parameter("how much of the set", 0, 1)] = 0.25,
    *,
    deep: bool = False,
    **parts: Annotated[float, Parameter("share of the set", 0, 1)],
) -> None:
    """Take the light ones, by ``luma``."""
    del table, share, deep, parts


def test_a_table_of_plugins_shows_their_parameters() -> None:
    table = common.plugin_table("sampler", {"light": describe_light}, 1)
    assert table.splitlines() == [
        "1 sampler; use one as --sampler NAME or --sampler NAME:key=value,key=value",
        "",
        "light  Take the light ones, by luma.",
        "         share: how much of the set (a number from 0 to 1; default 0.25)",
        "         deep: true or false; default false",
        "         NAME=VALUE: share of the set (a number from 0 to 1)",
    ]


def test_a_verb_that_lists_plugins_prints_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrators", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    listed = json.loads(out)["calibrators"]
    assert {"name", "summary", "module", "parameters"} <= set(listed[0])
    assert run(["calibrators"]) == 0
    table = capsys.readouterr().out
    assert all(f"\n{each['name']} " in table for each in listed)
