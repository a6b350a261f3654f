"""The files of a build folder: caches, Q/DQ networks, ranges, statistics, selection."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.graph import Network
from calib.core.statfile import pack
from calib.core.trtcache import render
from calib.edges.builddir import RELEASE, STATISTICS, BuildFolder
from calib.edges.files import sha256_file, write_atomic
from calib.edges.models import save_model
from calib.jobs.build.choose import Choice
from calib.jobs.build.request import BuildRequest
from calib.jobs.sample import write_selection
from calib.stages.cachefile import Coverage, cache_entries
from calib.stages.qdq import QdqResult, quantize_model
from calib.stages.ranges import BoundCalibrator
from calib.stages.rangesfile import ranges_document
from calib.types.progress import Progress
from calib.types.statistics import DynamicRange, TensorStatistics

SELECTION = "selection.jsonl"
RELEASE_PURPOSE = "the release artifact: the first calibrator's cache, for TensorRT 10 and older"


@dataclass(frozen=True)
class Variant:
    """What one calibrator gave.

    Attributes:
        calibrator: with its arguments.
        ranges: dynamic range by tensor name.
        coverage: what its cache covers.
        quantized: its Q/DQ network, and how that came about.
    """

    calibrator: BoundCalibrator
    ranges: Mapping[str, DynamicRange]
    coverage: Coverage
    quantized: QdqResult


@dataclass(frozen=True)
class Written:
    """A file of the build folder: name, sha256 as hex, size in bytes, what it is for."""

    name: str
    sha256: str
    size: int
    purpose: str


def write_variants(
    folder: BuildFolder,
    model: onnx.ModelProto,
    network: Network,
    request: BuildRequest,
    calibrated: Sequence[tuple[BoundCalibrator, Mapping[str, DynamicRange]]],
    statistics: Mapping[str, TensorStatistics],
    progress: Progress,
) -> tuple[list[Variant], list[Written]]:
    """Write each calibrator's cache and Q/DQ network, and the release cache."""
    unseen = [name for name, item in statistics.items() if not item.count]
    variants: list[Variant] = []
    written: list[Written] = []
    with progress.task("write", len(calibrated)) as task:
        for calibrator, ranges in calibrated:
            entries, coverage = cache_entries(network, ranges, unseen)
            cache = render(entries, request.trt_version, request.cache_algorithm).render()
            amax = {name: item.amax for name, item in ranges.items() if statistics[name].count}
            quantized = quantize_model(model, amax, request.target)
            variants.append(Variant(calibrator, ranges, coverage, quantized))
            label = calibrator.label
            if not written:
                written.append(_write(folder, RELEASE, cache, RELEASE_PURPOSE))
            written.append(_write(folder, f"{label}.cache", cache, f"cache of {calibrator.spec}"))
            written += _save(folder.path / f"{label}.qdq.onnx", quantized.model, f"Q/DQ network of {calibrator.spec}")
            task.advance()
    return variants, written


def write_records(
    folder: BuildFolder,
    network: Network,
    statistics: Mapping[str, TensorStatistics],
    variants: Sequence[Variant],
    choice: Choice,
) -> list[Written]:
    """Write the selection, the statistics and every range."""
    calibrators = [variant.calibrator for variant in variants]
    ranges = {variant.calibrator.label: variant.ranges for variant in variants}
    document = ranges_document(network, statistics, ranges, calibrators)
    packed = pack(statistics, {"images": dict(sorted(choice.digests.items()))})
    write_selection(folder.path / SELECTION, choice.table, choice.selection)
    return [
        describe_file(folder.path / SELECTION, "the images calibrated on, one a line"),
        _write(folder, STATISTICS, packed, "statistics of every tensor, mergeable"),
        _write(folder, "ranges.json", json_bytes(document), "every tensor's range by every calibrator"),
    ]


def json_bytes(document: Any) -> bytes:
    """Indented JSON with a final newline, the same bytes for the same document."""
    return (json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def describe_file(path: Path, purpose: str) -> Written:
    """Hash a written file."""
    return Written(path.name, sha256_file(path), path.stat().st_size, purpose)


def _write(folder: BuildFolder, name: str, data: bytes, purpose: str) -> Written:
    write_atomic(folder.path / name, data)
    return describe_file(folder.path / name, purpose)


def _save(path: Path, model: onnx.ModelProto, purpose: str) -> Iterable[Written]:
    save_model(model, path)
    yield describe_file(path, purpose)
    weights = path.with_name(f"{path.name}.data")
    if weights.exists():
        yield describe_file(weights, f"weights of {path.name}")
