"""The sample job: choose images from a scan index, write the selection, draw the contact sheet."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from calib.core.plugins import parse_spec
from calib.core.scoretable import full_column, has_labels
from calib.edges.files import make_output_folder, read_bytes, write_atomic
from calib.edges.index import IndexInfo, read_index_and_info
from calib.edges.plugins import all_samplers
from calib.edges.report.sheet import Tile, render_sheet
from calib.errors import FormatError
from calib.stages.sample import choose, distribution
from calib.types.scores import ScoreTable, Selection

DEFAULT_SAMPLER = "stratified"


class SelectedImage(msgspec.Struct, frozen=True):
    """A line of ``selection.jsonl``.

    Attributes:
        image: key of the image.
        sha256: hex digest of its file.
        sampler: the sampler that chose it.
        score: the score it was chosen by; comparable within a sampler.
        rank: place in the selection, from 1.
    """

    image: str
    sha256: str
    sampler: str
    score: float
    rank: int


@dataclass(frozen=True)
class Sample:
    """A selection with what it was chosen from.

    Attributes:
        table: scores of the population.
        info: where they come from.
        selection: the chosen rows.
    """

    table: ScoreTable
    info: IndexInfo
    selection: Selection

    def summary(self) -> dict[str, Any]:
        """Describe the sample for ``--json``."""
        return {
            "images": len(self.selection.rows),
            "population": len(self.table),
            "notes": list(self.selection.notes),
            "distribution": distribution(self.table, self.selection.rows),
        }


def sample(index: Path, specs: Sequence[str], n: int, seed: int) -> Sample:
    """Choose images from a scan index.

    Args:
        index: from ``calib scan``.
        specs: samplers as ``NAME:key=value``; several share ``n`` evenly.
        n: images wanted.
        seed: of every random choice.

    Raises:
        ImageError: the index is missing.
        FormatError: it is no index.
        UsageError: an unknown sampler or a bad argument.
    """
    table, info = read_index_and_info(index)
    selection = choose(table, [parse_spec(spec) for spec in specs], all_samplers(), n, seed)
    return Sample(table, info, selection)


def list_selection(table: ScoreTable, selection: Selection) -> list[SelectedImage]:
    """List the chosen images in order of rank; scores are rounded to nine digits."""
    digests = table.columns["sha256"].tolist()
    chosen = zip(selection.rows.tolist(), selection.scores.tolist(), selection.samplers, strict=True)
    return [
        SelectedImage(table.keys[row], digests[row], sampler, float(f"{score:.9g}"), rank)
        for rank, (row, score, sampler) in enumerate(chosen, start=1)
    ]


def write_selection(path: Path, table: ScoreTable, selection: Selection) -> None:
    """Write ``selection.jsonl``, a line an image.

    Raises:
        OutputError: it cannot be written.
    """
    encode = msgspec.json.Encoder().encode
    make_output_folder(path.parent)
    write_atomic(path, b"".join(encode(item) + b"\n" for item in list_selection(table, selection)))


def read_selection(path: Path) -> list[SelectedImage]:
    """Read ``selection.jsonl``.

    Raises:
        ImageError: the file is missing.
        FormatError: a line is malformed; the place names it.
    """
    decoder = msgspec.json.Decoder(SelectedImage)
    found = []
    for number, line in enumerate(read_bytes(str(path)).splitlines(), start=1):
        try:
            found.append(decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise FormatError(
                f"{path}, line {number}",
                expected="image, sha256, sampler, score and rank of one image",
                got=str(error),
                remedy="make the selection again with `calib sample`",
            ) from error
    return found


def write_sheet(path: Path, chosen: Sample, root: str | None = None, workers: int | None = None) -> None:
    """Draw the contact sheet of a selection.

    Args:
        path: the PNG.
        chosen: the selection.
        root: folder of the images; by default where they were scanned.
        workers: threads that decode; all cores by default.

    Raises:
        OutputError: it cannot be written.
    """
    table = chosen.table
    names = ", ".join(dict.fromkeys(chosen.selection.samplers))
    heading = (
        f"{len(chosen.selection.rows)} of {len(table)} images of {chosen.info.dataset} {chosen.info.split}: {names}"
    )
    tiles = [
        Tile(
            _address(table, row, root), f"{rank}  {table.keys[row]}", (f"{name}  score {score:.3g}", _facts(table, row))
        )
        for rank, (row, score, name) in enumerate(
            zip(chosen.selection.rows.tolist(), chosen.selection.scores, chosen.selection.samplers, strict=True), 1
        )
    ]
    make_output_folder(path.parent)
    write_atomic(path, render_sheet(heading, chosen.selection.notes, tiles, workers or os.cpu_count() or 1))


def _address(table: ScoreTable, row: int, root: str | None) -> str:
    return str(table.columns["path"][row]) if root is None else str(Path(root) / table.keys[row])


def _facts(table: ScoreTable, row: int) -> str:
    luma, dark = full_column(table, "luma_mean")[row], full_column(table, "dark_share")[row]
    facts = f"luma {luma:.0f}  dark {dark:.0%}"
    if has_labels(table) and np.isfinite(table.columns["small_share"][row]):
        return f"{facts}  small {int(table.columns['small_count'][row])}"
    return facts
