"""``calib scan``: score every image of a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calib.cli.common import JsonFlag, PreprocessOption, QuietFlag, RootOption, WorkersOption, emit

if TYPE_CHECKING:
    from calib.jobs.scan import ScanResult


def command(
    manifest: Annotated[str, typer.Argument(help="Manifest, list or COCO file, or the name of a shipped manifest.")],
    output: Annotated[Path, typer.Option("-o", "--output", help="The index to write, INDEX.parquet.")],
    split: Annotated[str | None, typer.Option("--split", help="Split to scan; needed where there are several.")] = None,
    root: RootOption = None,
    preprocess: PreprocessOption = None,
    workers: WorkersOption = None,
    as_json: JsonFlag = False,
    quiet: QuietFlag = False,
) -> None:
    """Score every image: light, edges, small objects, classes, hashes. Unchanged files are not read again."""
    from calib.edges.manifest import load_dataset
    from calib.edges.progress import choose_progress
    from calib.jobs.scan import scan

    progress = choose_progress(quiet=quiet)
    dataset = load_dataset(manifest, split, root, preprocess)
    result = scan(dataset, output, progress=progress, workers=workers)
    for note in result.notes:
        progress.warn(note)
    document = summarise(result, output)
    emit(document, as_json=as_json, text=render_summary(document))


def summarise(result: ScanResult, output: Path) -> dict[str, Any]:
    """Describe a scan for ``--json``."""
    from calib.core.scores import is_bright, is_dark, is_flat

    table = result.table
    return {
        "schema": 1,
        "index": str(output),
        "dataset": result.info.dataset,
        "split": result.info.split,
        "images": len(table),
        "read": len(table) - result.reused,
        "unchanged": result.reused,
        "labelled": int(table.columns["labelled"].sum()),
        "dark": int(is_dark(table).sum()),
        "overexposed": int(is_bright(table).sum()),
        "flat": int(is_flat(table).sum()),
        "thresholds": dict(table.thresholds),
        "notes": list(result.notes),
    }


def render_summary(document: dict[str, Any]) -> str:
    """Render a scan's summary for people."""
    luma = document["thresholds"]["dark_luma"]
    return (
        f"{document['index']}: {document['images']} images of {document['dataset']} {document['split']}, "
        f"{document['labelled']} with labels ({document['read']} read, {document['unchanged']} unchanged)\n"
        f"dark (a third of the pixels below luma {luma:g}): {document['dark']}   "
        f"overexposed: {document['overexposed']}   flat: {document['flat']}"
    )
