"""``calib cache diff``: two files of ranges side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calib.core.printable import printable
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.report.rangediff import DiffSubject, diff_page, diff_svg, summary
from calib.edges.tables import load_table
from calib.errors import UsageError
from calib.stages.rangediff import Change, TableDiff, diff_tables

RENDERERS = {".html": diff_page, ".svg": diff_svg}


def diff(first: str, second: str, picture: Path | None = None) -> TableDiff:
    """Compare two files, and draw the comparison where asked to.

    Raises:
        UsageError: the picture is neither HTML nor SVG, or one file names modules and the other tensors.
        CalibError: a file cannot be read.
    """
    renderer = RENDERERS.get(picture.suffix.lower()) if picture else None
    if picture is not None and renderer is None:
        got = repr(picture.suffix or str(picture))
        raise UsageError(f"-o {picture}", expected="a file name with .html or .svg", got=got, remedy="choose one")
    ours, theirs = load_table(first), load_table(second)
    if ours.naming != theirs.naming:
        raise UsageError(
            second,
            expected=f"names of {ours.naming}s, as in {first}",
            got=f"names of {theirs.naming}s",
            remedy="bring one into the other's terms: `calib cache convert --model NETWORK.onnx`",
        )
    found = diff_tables(ours, theirs)
    if picture is not None and renderer is not None:
        make_output_folder(picture.parent)
        write_atomic(picture, renderer(found, DiffSubject(Path(first).name, Path(second).name)))
    return found


def document_of(first: str, second: str, found: TableDiff) -> dict[str, Any]:
    """Describe a comparison as one JSON document, the largest difference first."""
    return {
        "schema": 1,
        "first": first,
        "second": second,
        "identical": found.identical,
        "headers": [{"key": key, "first": before, "second": after} for key, before, after in found.headers],
        "tensors": [_entry(item) for item in found.by_size],
        "only_first": [printable(name) for name in found.only_first],
        "only_second": [printable(name) for name in found.only_second],
    }


def _entry(item: Change) -> dict[str, Any]:
    return {
        "name": printable(item.name),
        "other": printable(item.other),
        "matched_by": item.how,
        "first": item.before,
        "second": item.after,
        "bits": item.bits,
    }


def as_text(first: str, second: str, found: TableDiff) -> str:
    """Lay a comparison out for people, the largest difference first; equal ranges are counted only."""
    lines = [f"first   {first}", f"second  {second}"]
    lines += [f"{key}: {before}, then {after}" for key, before, after in found.headers]
    changed = [item for item in found.by_size if item.bits != 0 or item.how != "name"]
    if changed:
        lines += ["", f"{'bits':>8}  {'first':>12}  {'second':>12}  tensor"]
    for item in changed:
        name = item.name if item.other == item.name else f"{item.name} = {item.other} (by {item.how})"
        lines.append(f"{item.bits:>+8.3f}  {item.before:>12.6g}  {item.after:>12.6g}  {name}")
    for which, names in (("first", found.only_first), ("second", found.only_second)):
        lines += ["", f"only in the {which} ({len(names)}):", *(f"  {name}" for name in names)] if names else []
    return "\n".join(printable(line) for line in (*lines, "", summary(found)))
