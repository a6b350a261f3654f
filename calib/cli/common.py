"""Options and output that the verbs share."""

from __future__ import annotations

import errno
import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from calib.errors import OutputError

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else.")]
QuietFlag = Annotated[bool, typer.Option("-q", "--quiet", help="No progress; warnings only.")]
VerboseFlag = Annotated[bool, typer.Option("-v", "--verbose", help="More detail on stderr.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random choice.")]
RootOption = Annotated[str | None, typer.Option("--root", help="Root folder of the images; overrides the manifest's.")]
WorkersOption = Annotated[int | None, typer.Option("--workers", min=1, help="Worker threads; default all cores.")]
PreprocessOption = Annotated[
    str | None,
    typer.Option("--preprocess", help="SPEC (colour=rgb,size=352x480,scale=1/255,mean=…,std=…) or a YAML file."),
]


def emit(document: Mapping[str, Any], *, as_json: bool, text: str) -> None:
    """Print the result of a command: the document under ``--json``, else the text for people.

    The JSON is plain ASCII (any locale and any file name can be printed) and holds null for NaN and infinities.
    A reader that has gone away does not change how the command ends: its exit code still tells.

    Raises:
        OutputError: standard output cannot be written, as on a full disk.
    """
    try:
        print(json.dumps(plain(document), indent=2) if as_json else text, flush=True)  # noqa: T201
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        reason = "no space left" if error.errno == errno.ENOSPC else (error.strerror or "an error").lower()
        raise OutputError(
            "standard output",
            expected="to print the result",
            got=reason,
            remedy="send the output to a place that can be written",
        ) from error


def silence_stdout() -> None:
    """Point standard output at nothing, so that the interpreter's own flush at exit stays quiet."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):  # not a real file, as under a test's capture
        pass
    finally:
        os.close(nowhere)


def plain(value: Any) -> Any:
    """Turn a document into what JSON can say: paths to text, arrays to lists, non-finite numbers to null."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def plugin_document(kind: str, registry: Mapping[str, Callable[..., Any]], given: int) -> dict[str, Any]:
    """Describe the plugins of a registry for ``--json``.

    Args:
        kind: ``sampler`` or ``calibrator``.
        registry: the plugins by name.
        given: how many leading parameters the workbench passes itself.
    """
    from calib.core.plugins import describe_plugin

    described = [describe_plugin(name, plugin, given) for name, plugin in registry.items()]
    return {"schema": 1, f"{kind}s": described}


def plugin_table(kind: str, registry: Mapping[str, Callable[..., Any]], given: int) -> str:
    """Render the plugins of a registry for people: a line each, its parameters below it.

    Args:
        kind: ``sampler`` or ``calibrator``.
        registry: the plugins by name.
        given: how many leading parameters the workbench passes itself.
    """
    plugins = plugin_document(kind, registry, given)[f"{kind}s"]
    width = max((len(plugin["name"]) for plugin in plugins), default=0)
    count = f"{len(plugins)} {kind}{'s' * (len(plugins) != 1)}"
    lines = [f"{count}; use one as --{kind} NAME or --{kind} NAME:key=value,key=value", ""]
    for plugin in plugins:
        lines.append(f"{plugin['name']:<{width}}  {plugin['summary'].replace('``', '')}".rstrip())
        lines += [f"{'':<{width}}    {_parameter_line(parameter)}" for parameter in plugin["parameters"]]
    return "\n".join(lines)


def _parameter_line(parameter: Mapping[str, Any]) -> str:
    name = "NAME=VALUE" if parameter["variadic"] else str(parameter["name"])
    default = "required" if parameter["required"] else f"default {_value_text(parameter['default'])}"
    takes = parameter["accepts"] if parameter["variadic"] else f"{parameter['accepts']}; {default}"
    return f"{name}: {parameter['help']} ({takes})" if parameter["help"] else f"{name}: {takes}"


def _value_text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
