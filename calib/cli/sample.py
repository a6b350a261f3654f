"""``calib sample``: choose calibration images from a scan index."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from calib.cli.common import JsonFlag, QuietFlag, RootOption, SeedOption, WorkersOption, emit


def command(
    index: Annotated[Path, typer.Argument(help="Index from `calib scan`.")],
    number: Annotated[int, typer.Option("-n", "--num-images", min=1, help="Images to choose.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The selection to write, SELECTION.jsonl.")],
    sampler: Annotated[
        list[str] | None, typer.Option("--sampler", help="NAME:key=value,…; several share the images evenly.")
    ] = None,
    sheet: Annotated[Path | None, typer.Option("--sheet", help="Contact sheet to draw, SHEET.png.")] = None,
    seed: SeedOption = 0,
    root: RootOption = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Choose images by their scores; `calib samplers` lists how. The contact sheet shows them."""
    from calib.edges.progress import choose_progress
    from calib.jobs.sample import DEFAULT_SAMPLER, sample, write_selection, write_sheet

    progress = choose_progress(quiet=quiet)
    specs = sampler or [DEFAULT_SAMPLER]
    chosen = sample(index, specs, number, seed)
    write_selection(output, chosen.table, chosen.selection)
    if sheet is not None:
        write_sheet(sheet, chosen, root, workers)
    for note in chosen.selection.notes:
        progress.note(note)
    document = {
        "schema": 1,
        "selection": str(output),
        "sheet": None if sheet is None else str(sheet),
        "samplers": specs,
        "seed": seed,
        **chosen.summary(),
    }
    emit(document, as_json=as_json, text=render_summary(document))


def render_summary(document: dict[str, Any]) -> str:
    """Render a selection's summary for people."""
    sheet = f", shown on {document['sheet']}" if document["sheet"] else ""
    return (
        f"{document['selection']}: {document['images']} of {document['population']} images "
        f"by {', '.join(document['samplers'])}{sheet}"
    )
