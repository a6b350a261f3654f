"""The sensitivity job: load, choose images, race, describe, write."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calib.edges.files import make_output_folder, write_atomic
from calib.edges.hardware import read_cpu
from calib.edges.progress import SilentProgress
from calib.edges.report.sensitivity import render_sensitivity_report
from calib.edges.sensitivity import COUNTS, CountsJournal, write_sensitivity
from calib.jobs.evaluate.checks import check_foreign, digest_labels
from calib.jobs.sensitivity.counting import Race
from calib.jobs.sensitivity.course import prepare
from calib.jobs.sensitivity.document import make_document
from calib.jobs.sensitivity.images import Images, choose_images
from calib.jobs.sensitivity.request import SensitivityRequest, check_request, counting_facts
from calib.jobs.sensitivity.subject import load_quantized
from calib.types.progress import Progress

PAGE = "sensitivity.html"
SCRATCH = ".sensitivity"
JOURNAL = "journal"


@dataclass(frozen=True)
class Sensitivity:
    """A finished measurement.

    Attributes:
        folder: where its files are.
        document: what ``sensitivity.json`` holds.
        reused: unit runs that an earlier measurement had left.
    """

    folder: Path
    document: dict[str, Any]
    reused: int


def sensitivity(
    network: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Measure what each quantizer costs alone, from Python; the same files are written as by ``calib sensitivity``.

    Args:
        network: a build folder, a Q/DQ ONNX file, or a float ONNX file with ``ranges``.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        progress: shows how far it is; default silent.
        options: further fields of :class:`SensitivityRequest`, such as ``split``, ``num_images``, ``rank_by``.

    Returns:
        what ``sensitivity.json`` holds.

    Raises:
        CalibError: something given cannot be used.
        TypeError: an option does not exist.
    """
    request = SensitivityRequest(os.fspath(network), os.fspath(data), Path(output), **options)
    return measure_sensitivity(request, progress or SilentProgress()).document


def measure_sensitivity(request: SensitivityRequest, progress: Progress) -> Sensitivity:
    """Measure what each quantizer costs alone; killed at any point, the same request goes on where it stopped.

    Raises:
        CalibError: something given cannot be used; see the subclasses.
    """
    measure = check_request(request)
    quantized = load_quantized(request)
    make_output_folder(request.output)
    images = choose_images(request, measure, quantized.calibrated_on, progress)
    foreign = check_foreign(images.dataset, images.table, request.foreign) if images.labelled else None
    course = prepare(request, quantized, images)
    labels = _labels(images, request)
    facts = counting_facts(request, quantized.digest, images.dataset, images.table, labels, course.reading)
    scratch = make_output_folder(request.output / SCRATCH)
    with CountsJournal(scratch / JOURNAL, request.output / COUNTS, facts) as journal:
        race = Race(request, course, images, journal, measure, progress)
        raced = race.run()
        document = make_document(race, raced, quantized)
        journal.finish()
    document["notes"] += [foreign] if foreign else []
    write_sensitivity(request.output, document)
    write_atomic(request.output / PAGE, render_sensitivity_report(document))
    shutil.rmtree(scratch, ignore_errors=True)
    return Sensitivity(request.output, document, raced.reused)


def _labels(images: Images, request: SensitivityRequest) -> str:
    return digest_labels(images.dataset, request.workers or read_cpu().usable) if images.labelled else ""
