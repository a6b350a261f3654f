"""What an evaluation found, as its report shows it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calib.core.statfile import unpack
from calib.edges.evaluation.tables import CLASSES, DOCUMENT, IMAGES, SLICES
from calib.edges.files import read_bytes, write_atomic
from calib.edges.report.evaluation import EvaluationReport, render_evaluation_report
from calib.edges.report.model import OutputFile, RangeCell, TensorRow
from calib.errors import CalibError
from calib.jobs.evaluate.counting import MATRICES, Counting
from calib.jobs.evaluate.pictures import choose_worst, draw_worst

REPORT = "evaluation.html"
PURPOSES: Mapping[str, str] = {
    DOCUMENT: "everything in this report, for programs",
    CLASSES: "every class under every network",
    SLICES: "every slice under every network",
    IMAGES: "every image under every network, and its slices",
    MATRICES: "confusion matrices of every image, for further slices without another run",
}
Json = Mapping[str, Any]


def write_report(counting: Counting, document: Json, images: Sequence[Json]) -> None:
    """Render and write ``evaluation.html``.

    Raises:
        OutputError: it cannot be written.
    """
    request = counting.request
    names = [model["name"] for model in document["models"]]
    chosen = choose_worst(images, names, document["reference"], counting.pictures)
    worst = draw_worst(counting, chosen, document["reference"], counting.progress)
    folders = dict.fromkeys(item.source.folder for item in counting.loaded if item.source.folder is not None)
    found = (read_ranges(folder) for folder in folders)
    tensors, calibrators = next((item for item in found if item[0] is not None), (None, ()))
    report = EvaluationReport(
        document=document,
        images=images,
        worst=worst,
        colours=dict(zip(counting.classes, counting.colours, strict=False)),
        tensors=tensors,
        calibrators=calibrators,
        files=tuple(_describe(request.output / name, purpose) for name, purpose in PURPOSES.items()),
    )
    write_atomic(request.output / REPORT, render_evaluation_report(report))


def read_ranges(folder: Path) -> tuple[tuple[TensorRow, ...] | None, tuple[str, ...]]:
    """Read every tensor's histogram and ranges from a build folder; nothing where its files cannot be read."""
    try:
        statistics, _ = unpack(read_bytes(str(folder / "statistics.npz")), str(folder / "statistics.npz"))
        found = json.loads(read_bytes(str(folder / "ranges.json")))
        rows = tuple(
            _tensor_row(item, statistics[item["name"]]) for item in found["tensors"] if item["name"] in statistics
        )
        names = [item["name"] if isinstance(item, dict) else str(item) for item in found["calibrators"]]
    except (CalibError, ValueError, KeyError, TypeError):
        return None, ()
    return rows, tuple(names)


def _tensor_row(item: Json, statistics: Any) -> TensorRow:
    ranges = {name: RangeCell(own["amax"], own["clipped"]) for name, own in item["ranges"].items()}
    row = TensorRow.from_statistics(statistics, item["op"], {}, ("derived",) if item["derived_from"] else ())
    note = f"Derived exactly: {item['derived_from']}." if isinstance(item["derived_from"], str) else ""
    return TensorRow(**{**vars(row), "ranges": ranges, "note": note})


def _describe(path: Path, purpose: str) -> OutputFile:
    return OutputFile(path.name, path.stat().st_size, purpose)
