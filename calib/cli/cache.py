"""``calib cache``: look into calibration caches."""

from __future__ import annotations

from typing import Annotated

import typer

from calib.cli.common import JsonFlag, emit

app = typer.Typer(no_args_is_help=True, help="Read TensorRT calibration caches.")


@app.callback()
def _group() -> None:
    """Read TensorRT calibration caches."""


@app.command()
def show(
    file: Annotated[str, typer.Argument(metavar="FILE", help="A TensorRT calibration cache.")],
    as_json: JsonFlag = False,
) -> None:
    """Print a cache: header, ranges, what the input's range says of the preprocessing, suspect entries."""
    from calib.jobs.cache.show import as_text, describe, load_cache

    document = describe(load_cache(file), file)
    emit(document, as_json=as_json, text=as_text(document))
