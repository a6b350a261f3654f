"""The ``calib`` command: verbs, exit codes, one message an error."""

from __future__ import annotations

import sys
from importlib import import_module

import typer

from calib.errors import CalibError

EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130

VERBS: tuple[tuple[str, str], ...] = (
    ("demo", "calib.cli.demo"),
    ("build", "calib.cli.build"),
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


def make_app() -> typer.Typer:
    """Assemble the command line; each module in VERBS has ``command``, each in GROUPS has ``app``."""
    app = typer.Typer(
        name="calib",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        help="INT8 calibration and quantization workbench for segmentation networks on TensorRT.",
    )
    app.callback()(_root)
    for name, module in VERBS:
        app.command(name)(import_module(module).command)
    for name, module in GROUPS:
        app.add_typer(import_module(module).app, name=name)
    return app


def main(arguments: list[str] | None = None) -> None:
    """Run one command and exit: 0 done, 1 a gate failed, 2 bad input, 130 interrupted."""
    try:
        make_app()(args=arguments)
    except CalibError as error:
        sys.stderr.write(f"calib: {error}\n")
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.stderr.write("calib: interrupted; the same command goes on where this one stopped\n")
        sys.exit(EXIT_INTERRUPTED)


def _version(value: bool) -> None:
    if value:
        from calib import __version__

        typer.echo(f"calib {__version__}")
        raise typer.Exit


def _root(
    version: bool = typer.Option(False, "--version", callback=_version, is_eager=True, help="Print the version."),
) -> None:
    del version
