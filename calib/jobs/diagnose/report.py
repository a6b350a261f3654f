"""``diagnosis.html``: the document as a page, with pictures of the image that was examined."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.difference import Difference
from calib.core.scoremap import planes_of, predict
from calib.edges.files import write_atomic
from calib.edges.images import read_picture
from calib.edges.labels import LabelReader
from calib.edges.report.diagnosis import DepthPoint, DiagnosisReport, render_diagnosis_report
from calib.edges.report.evaluation import Overlay
from calib.errors import CalibError
from calib.jobs.diagnose.climb import Climb, Climber
from calib.jobs.evaluate.pictures import colour_table, draw_flips, encode_classes, encode_photo
from calib.stages.diagnose.profile import TensorError

REPORT = "diagnosis.html"
SHOWN = ("tensorrt", "fake-quant", "candidate", "float")
"""The rung whose class map is shown: the first of these that runs."""


def write_report(
    folder: Path, document: Mapping[str, Any], tensors: Sequence[TensorError], climb: Climb, climber: Climber
) -> None:
    """Render and write the report.

    Raises:
        OutputError: it cannot be written.
    """
    overlays = _overlays(climb, climber) if climber.labelled else ()
    report = DiagnosisReport(document, [_point(item) for item in tensors], overlays)
    write_atomic(folder / REPORT, render_diagnosis_report(report))


def _point(item: TensorError) -> DepthPoint:
    return DepthPoint(item.depth, item.tensor, item.node, _db(item.born), _db(item.total), _db(item.quantized))


def _db(found: Difference | None) -> float:
    return math.nan if found is None else found.sqnr_db


def _overlays(climb: Climb, climber: Climber) -> tuple[Overlay, ...]:
    """The image, its label, both class maps, and the pixels that changed."""
    record = next(record for record in climber.dataset.records if record.key == climb.worst)
    label = LabelReader(climber.dataset).read(record).ids
    pixels = read_picture(record.path, expected_size=label.shape).pixels
    name = next((name for name in SHOWN if name in climber.contestants), None)
    if name is None or climber.dataset.preprocess is None:
        return ()
    try:
        before, box = _classes(climb, climber, "reference", pixels)
        after, _ = _classes(climb, climber, name, pixels)
    except CalibError:
        return ()
    covered, truth = box.of(np.moveaxis(pixels, -1, 0)), box.of(label)
    seen = np.ascontiguousarray(np.moveaxis(covered, 0, -1))
    colours = climber.dataset.classes.colours if climber.dataset.classes else ()
    table = colour_table(colours, len(climb.classes))
    title = climber.contestants[name].rung.title
    return (
        Overlay("image", encode_photo(seen)),
        Overlay("label", encode_classes(truth, table)),
        Overlay("reference", encode_classes(before, table)),
        Overlay(title, encode_classes(after, table)),
        Overlay("flipped pixels", encode_photo(draw_flips(seen, truth, before, after))),
    )


def _classes(climb: Climb, climber: Climber, name: str, pixels: NDArray[np.uint8]) -> tuple[NDArray[Any], Any]:
    from calib.core.preprocess import geometry

    contestant, reading = climber.contestants[name], climb.readings[name]
    output = contestant.output(climber.feeds(contestant.part, climb.worst, pixels), reading.name)
    plan = geometry((pixels.shape[0], pixels.shape[1]), contestant.part.preprocess)
    planes = planes_of(output, reading, len(climb.classes), plan.network, name)[0]
    return predict(planes, reading, plan, plan.covered.size, len(climb.classes)).ids, plan.covered
