"""The evaluation job: load, check, score every image, compare, judge, write."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calib.core.maxdrop import Limit, Verdict, check_names, parse_max_drop
from calib.core.slices import DARK_PIXELS, Slice, dark_pixels, make_slices, parse_slices
from calib.edges.evaluation.loading import Loaded, load_network
from calib.edges.evaluation.matrices import Matrices
from calib.edges.evaluation.mlflowlog import log_evaluation, require_mlflow
from calib.edges.evaluation.sources import Calibration, Source, find_sources
from calib.edges.evaluation.tables import write_document, write_tables
from calib.edges.files import make_output_folder
from calib.edges.folderlock import sole_writer
from calib.edges.manifest import load_dataset, require_preprocess
from calib.edges.progress import SilentProgress
from calib.edges.runners.ort import shared_memory_released
from calib.errors import UsageError
from calib.jobs.evaluate.checks import check_foreign, check_leaks, ignored_class, other_network, require_labels
from calib.jobs.evaluate.counting import SCRATCH, Counting
from calib.jobs.evaluate.document import judge_all, make_document
from calib.jobs.evaluate.reporting import write_report
from calib.jobs.evaluate.request import EvaluateRequest
from calib.jobs.evaluate.training import compare_trainings
from calib.jobs.scan import scan
from calib.stages.compare import Sampling, compare_networks, image_rows
from calib.stages.describe import Networks, dark_holders, split_facts
from calib.types.data import Dataset
from calib.types.progress import Progress

INDEX = "index.parquet"


@dataclass(frozen=True)
class Evaluation:
    """A finished evaluation.

    Attributes:
        folder: where its files are.
        document: what ``evaluation.json`` holds.
        images: what ``evaluation_images.csv`` holds, one entry an image.
        verdicts: the gate's clauses, failing ones first; empty without a gate.
        reused: images whose counts an earlier run had left.
    """

    folder: Path
    document: dict[str, Any]
    images: list[dict[str, Any]]
    verdicts: tuple[Verdict, ...]
    reused: int

    @property
    def passed(self) -> bool:
        """Whether every clause of the gate holds."""
        return all(verdict.passed for verdict in self.verdicts)


def evaluate(
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    data: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Evaluate networks from Python; the same files are written as by ``calib evaluate``.

    Args:
        models: ONNX files, build folders, ``module:factory``; one or several.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        progress: shows how far it is; default silent.
        options: further fields of :class:`EvaluateRequest`, such as ``split``, ``reference``, ``max_drop``.

    Returns:
        what ``evaluation.json`` holds.

    Raises:
        CalibError: something given cannot be used.
        TypeError: an option does not exist.
    """
    several = [models] if isinstance(models, str | os.PathLike) else list(models)
    if isinstance(options.get("slices"), str):
        options["slices"] = [options["slices"]]
    request = EvaluateRequest([os.fspath(item) for item in several], os.fspath(data), Path(output), **options)
    return run_evaluation(request, progress or SilentProgress()).document


@shared_memory_released()
def run_evaluation(request: EvaluateRequest, progress: Progress) -> Evaluation:
    """Run an evaluation; killed at any point, the same request goes on where it stopped.

    Raises:
        CalibError: something given cannot be used; see the subclasses.
    """
    question = _prepare(request, progress)
    make_output_folder(request.output)
    with sole_writer(request.output / SCRATCH):
        return _answer(question, progress)


@dataclass(frozen=True)
class _Question:
    """A request that was found sound, before anything is scored or written."""

    request: EvaluateRequest
    limits: tuple[Limit, ...]
    custom: Mapping[str, str]
    sources: tuple[Source, ...]
    dataset: Dataset
    sampling: Sampling
    loaded: tuple[Loaded, ...]
    reference: int | None


def _prepare(request: EvaluateRequest, progress: Progress) -> _Question:
    limits = parse_max_drop(request.max_drop) if request.max_drop else ()
    custom = parse_slices(request.slices)
    if request.mlflow is not None:
        require_mlflow()
    sources = find_sources(request.models, request.reference)
    dataset = load_dataset(request.data, request.split, request.root, request.preprocess)
    require_labels(dataset)
    require_preprocess(dataset)
    _check_limits([limit for limit in limits if limit.kind == "class"], dataset, ())
    sampling = make_sampling(request, dataset)
    loaded = _load(request, dataset, sources, progress)
    reference = choose_reference(request, loaded)
    if limits:
        _require_opponents(loaded, reference)
    return _Question(request, limits, custom, sources, dataset, sampling, loaded, reference)


def _answer(question: _Question, progress: Progress) -> Evaluation:
    request, dataset, reference = question.request, question.dataset, question.reference
    table = scan(dataset, request.output / INDEX, progress=progress, workers=request.workers).table
    notes = list(filter(None, (ignored_class(dataset), check_foreign(dataset, table, request.foreign))))
    calibrations = check_leaks(question.sources, request, table, request.output / SCRATCH, progress)
    notes += _foreign_builds(calibrations, question.loaded, reference)
    slices, left_out = make_slices(table, [record.group for record in dataset.records], question.custom)
    _check_limits(question.limits, dataset, slices)
    counting = Counting(request, dataset, table, question.loaded, reference, progress)
    counted = counting.count()
    networks = networks_of(counted.matrices)
    if dark_holders(networks).any():
        slices = (*slices, dark_pixels(table, dark_holders(networks)))
    models = compare_networks(networks, slices, question.sampling, reference, progress)
    models = [{"name": name, **model} for name, model in zip(networks.names, models, strict=True)]
    verdicts = judge_all(models, question.limits, reference, request)
    every_note = (*notes, *left_out, *_remarks(counted.matrices))
    document = make_document(counting, models, slices, split_facts(networks), verdicts, calibrations, every_note)
    document["trainings"] = compare_trainings(
        question.loaded, calibrations, networks, slices, question.sampling, reference, progress
    )
    images = image_rows(networks, slices, reference)
    return _write(counting, Evaluation(request.output, document, images, verdicts, counted.reused))


def choose_reference(request: EvaluateRequest, loaded: Sequence[Loaded]) -> int | None:
    """Place of the reference: the first network, where it is named as such, or is a float network among others."""
    if request.reference is not None:
        return 0
    return 0 if len(loaded) > 1 and loaded[0].quantized is False else None


def make_sampling(request: EvaluateRequest, dataset: Dataset) -> Sampling:
    """Decide what the bootstrap draws.

    Raises:
        UsageError: the column to draw by is not one that every image has.
    """
    column = request.bootstrap_by
    if column is None:
        return Sampling(request.resamples, request.seed)
    values = [record.group.get(column, "") for record in dataset.records]
    if "" in values:
        known = sorted({name for record in dataset.records for name in record.group})
        raise UsageError(
            f"--bootstrap-by {column}",
            expected="a manifest column that every image has",
            got="columns " + ", ".join(known) if known else "a manifest without columns",
            remedy="name one of them, or state `group:` in the manifest",
        )
    groups = np.unique(values, return_inverse=True)[1].astype(np.int64)
    return Sampling(request.resamples, request.seed, groups)


def networks_of(matrices: Matrices) -> Networks:
    """The counts as the comparison takes them."""
    return Networks(
        names=matrices.models,
        classes=matrices.classes,
        keys=matrices.keys,
        images=matrices.images,
        counts=matrices.networks,
        layout=matrices.layout,
        image_layout=matrices.image_layout,
        foreign=matrices.foreign,
        ties_known=matrices.ties_known,
    )


def _load(
    request: EvaluateRequest, dataset: Dataset, sources: Sequence[Source], progress: Progress
) -> tuple[Loaded, ...]:
    with progress.task("loading networks", len(sources)) as task:
        loaded = []
        for source in sources:
            loaded.append(load_network(source, dataset, request.numerics, request.provider))
            task.advance()
    return tuple(loaded)


def _foreign_builds(calibrations: Sequence[Calibration], loaded: Sequence[Loaded], reference: int | None) -> list[str]:
    if reference is None or not loaded[reference].digest:
        return []
    own = loaded[reference]
    return other_network(calibrations, own.source.name, own.files)


def _check_limits(limits: Sequence[Limit], dataset: Dataset, slices: Sequence[Slice]) -> None:
    classes = dataset.classes.names if dataset.classes else ()
    check_names(limits, classes, [*(item.name for item in slices), DARK_PIXELS])


def _require_opponents(loaded: Sequence[Loaded], reference: int | None) -> None:
    """Refuse a gate that would open without having judged anything."""
    if reference is None:
        raise UsageError(
            "--max-drop",
            expected="a reference to lose against",
            got="none",
            remedy="name the float network with --reference, or first among the MODELs",
        )
    if len(loaded) < 2:
        raise UsageError(
            "--max-drop",
            expected="a network to judge against the reference",
            got=f"{loaded[reference].source.address} alone",
            remedy="name the quantized network, or its build folder, among the MODELs",
        )


def _remarks(matrices: Matrices) -> Iterator[str]:
    for name, remarks in zip(matrices.models, matrices.remarks, strict=True):
        yield from (f"{name}: {remark}" for remark in remarks)


def _write(counting: Counting, evaluation: Evaluation) -> Evaluation:
    """Write every file; the report last, for it names the others."""
    write_document(evaluation.folder, evaluation.document)
    write_tables(evaluation.folder, evaluation.document, evaluation.images)
    write_report(counting, evaluation.document, evaluation.images)
    shutil.rmtree(evaluation.folder / SCRATCH, ignore_errors=True)
    if counting.request.mlflow is not None:
        log_evaluation(counting.request.mlflow, evaluation.folder, evaluation.document)
    return evaluation
