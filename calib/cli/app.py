"""The ``calib`` command: verbs, exit codes, one message an error."""

from __future__ import annotations

import difflib
import re
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from types import FrameType
from typing import Any, NoReturn

import typer
from typer.core import TyperGroup

from calib.cli.common import silence_stdout
from calib.cli.crash import describe_system_error, report_bug
from calib.errors import CalibError, UsageError

EXIT_BAD_INPUT = 2
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
"""0 done · 1 a gate failed · 2 bad input or usage · 70 a bug in calib · 130 interrupted."""

VERBS: tuple[tuple[str, str], ...] = (
    ("demo", "calib.cli.demo"),
    ("build", "calib.cli.build"),
    ("qat", "calib.cli.qat"),
    ("evaluate", "calib.cli.evaluate"),
    ("diagnose", "calib.cli.diagnose"),
    ("sensitivity", "calib.cli.sensitivity"),
    ("verify", "calib.cli.verify"),
    ("sign", "calib.cli.sign"),
    ("lint", "calib.cli.lint"),
    ("engine", "calib.cli.engine"),
    ("scan", "calib.cli.scan"),
    ("sample", "calib.cli.sample"),
    ("samplers", "calib.cli.samplers"),
    ("calibrators", "calib.cli.calibrators"),
    ("doctor", "calib.cli.doctor"),
)
GROUPS: tuple[tuple[str, str], ...] = (
    ("manifest", "calib.cli.manifest"),
    ("cache", "calib.cli.cache"),
)
HELP = "INT8 calibration and quantization workbench for segmentation networks on TensorRT."


class VerbGroup(TyperGroup):
    """A set of verbs that answers an unknown one in the workbench's own words."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the verb.

        Raises:
            UsageError: there is none of that name.
        """
        verb = args[0]
        if verb not in self.commands and not verb.startswith("-"):
            close = difflib.get_close_matches(verb.lower(), self.commands, n=1)
            hint = f"did you mean `{ctx.command_path} {close[0]}`? " if close else ""
            raise UsageError(
                ctx.command_path,
                expected="one of " + ", ".join(self.commands),
                got=repr(verb),
                remedy=f"{hint}`{ctx.command_path} --help` says what each does",
            )
        return super().resolve_command(ctx, args)


def make_app(verbs: Sequence[tuple[str, str]] = VERBS, groups: Sequence[tuple[str, str]] = GROUPS) -> typer.Typer:
    """Assemble the command line; each module in ``verbs`` has ``command``, each in ``groups`` has ``app``."""
    app = typer.Typer(
        name="calib",
        cls=VerbGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
        help=HELP,
    )
    app.callback()(_root)
    for name, module in verbs:
        app.command(name)(import_module(module).command)
    for name, module in groups:
        app.add_typer(import_module(module).app, name=name, cls=VerbGroup)
    return app


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command of this process and exit with its code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup and in a script's background
            signal.signal(number, _interrupt)
    sys.exit(run(given))


def run(arguments: Sequence[str], app: typer.Typer | None = None) -> int:
    """Run one command.

    Args:
        arguments: what follows ``calib`` on the command line.
        app: another command line than the workbench's own, for tests.

    Returns:
        the exit code: 0 done, 1 a gate failed, 2 bad input or usage, 70 a bug, 130 interrupted.
    """
    try:
        return _invoke(list(arguments), make_app() if app is None else app)
    except CalibError as error:
        return _fail(error, error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("calib: interrupted; the same command goes on where this one stopped\n")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return EXIT_BAD_INPUT
    except (MemoryError, OSError) as error:
        return _fail(describe_system_error(error), EXIT_BAD_INPUT)
    except Exception as error:  # noqa: BLE001 - the last line of defence: whatever it is, it is told in one message
        report_bug(error, verbose=not {"-v", "--verbose"}.isdisjoint(arguments))
        return EXIT_BUG


def _invoke(arguments: list[str], app: typer.Typer) -> int:
    try:
        with typer.main.get_command(app).make_context("calib", arguments) as context:
            context.command.invoke(context)
    except typer.Exit as done:
        return done.exit_code
    except typer.Abort:
        raise KeyboardInterrupt from None
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # raised once the help is printed
            return EXIT_BAD_INPUT
        raise _usage_error(error, arguments) from error
    return 0


def _fail(error: CalibError, code: int) -> int:
    from calib.core.printable import printable

    prefix = "" if error.place.split(" ")[0] == "calib" else "calib: "
    sys.stderr.write(printable(f"{prefix}{error}\n", keep="\n"))
    return code


def _interrupt(number: int, frame: FrameType | None) -> None:
    """End at the next safe point; a second signal ends at once."""
    del frame
    signal.signal(number, signal.SIG_DFL)
    raise KeyboardInterrupt


def _usage_error(error: Any, arguments: list[str]) -> CalibError:
    """Say a parser's complaint as place, expected, got, remedy."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else " ".join(["calib", *arguments[:1]])
    message = error.format_message() if hasattr(error, "format_message") else str(error)
    place, expected, got = path, "arguments and options as its help says", _decapitalise(message)
    hint = f"`{path} --help` shows its arguments and options"
    if hasattr(error, "possibilities"):
        expected, got = f"an option of {path}", repr(error.option_name)
        hint = f"did you mean {' or '.join(sorted(error.possibilities))}? {hint}" if error.possibilities else hint
    elif hasattr(error, "param_type"):
        expected, got = f"a value for {_hint_of(error)}", "nothing"
    elif hasattr(error, "param"):
        place, expected, got = f"{path} {_hint_of(error)}", *_expected_and_got(error)
    return UsageError(place, expected=expected, got=got, remedy=hint)


def _hint_of(error: Any) -> str:
    """Name the option or argument that an error is about, as its help does."""
    hint = error.param_hint or (error.param.get_error_hint() if error.param else "a value")
    return (hint if isinstance(hint, str) else " / ".join(hint)).replace("'", "")


def _expected_and_got(error: Any) -> tuple[str, str]:
    """Take ``Input should be a valid integer, unable to …`` and the value it is about apart."""
    message = error.message.removeprefix("Value error, ").rstrip(".")
    matched = re.fullmatch(r"(.+?) is not ((?:a|one) .+)", message, re.DOTALL)
    if matched:
        return matched[2], matched[1]
    causes = error.__cause__.errors() if hasattr(error.__cause__, "errors") else []
    value = repr(causes[0]["input"]) if causes else _decapitalise(message)
    if message.startswith("Input should be "):
        return message.removeprefix("Input should be ").partition(", ")[0], value
    return ("a valid value" if not causes else _decapitalise(message)), value


def _decapitalise(message: str) -> str:
    text = message.removeprefix("Got ").rstrip(".")
    return text[:1].lower() + text[1:]


def _version(value: bool) -> None:
    if value:
        from calib import __version__

        typer.echo(f"calib {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version
