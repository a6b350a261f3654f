"""The files of a build folder: caches, Q/DQ networks, ranges, statistics, selection."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calib.core.plan import Target
from calib.core.statfile import pack
from calib.core.trtcache import render
from calib.edges.builddir import RELEASE, REPORT, STATISTICS, VOUCHERS, BuildFolder
from calib.edges.files import write_atomic
from calib.edges.written import Written, describe_file, json_bytes, save_described
from calib.jobs.build.choose import Choice
from calib.jobs.build.request import BuildRequest
from calib.jobs.build.sources import Source
from calib.jobs.sample import write_selection
from calib.stages.cachefile import Coverage, cache_entries
from calib.stages.collect import Collected
from calib.stages.qdq import QdqResult, quantize_model
from calib.stages.ranges import BoundCalibrator
from calib.stages.rangesfile import ranges_document
from calib.types.progress import Progress
from calib.types.statistics import DynamicRange

SELECTION = "selection.jsonl"
RANGES = "ranges.json"


@dataclass(frozen=True)
class Calibrated:
    """A network with its statistics and every range.

    Attributes:
        source: the network and its calibrators.
        collected: statistics of every tensor.
        ranges: calibrator label to dynamic range by tensor name.
    """

    source: Source
    collected: Collected
    ranges: Mapping[str, Mapping[str, DynamicRange]]


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


def planned_names(sources: Sequence[Source]) -> Iterator[str]:
    """Names of the files that a build writes."""
    yield from (RELEASE, SELECTION, REPORT, *VOUCHERS)
    for place, source in enumerate(sources):
        yield from (_named(name, source, place) for name in (STATISTICS, RANGES))
        yield from [source.file_name] if source.file_name else []
        for item in source.calibrators:
            yield from (f"{item.label}.cache", f"{item.label}.qdq.onnx")


def rehearse(sources: Sequence[Source], request: BuildRequest) -> None:
    """Let the writers try on made-up ranges, so that what they refuse is refused before any image is read.

    Raises:
        ModelError: a weight is not finite, or the opset is too old for Q/DQ and cannot be raised.
        FormatError: a tensor's name cannot stand in a cache.
    """
    for source in sources:
        names = [item.name for item in source.network.activations]
        render(((name, 1.0) for name in names), request.trt_version, request.cache_algorithm)
        quantize_model(source.model, dict.fromkeys(names, 1.0), request.target, source.placement)


def write_variants(
    folder: BuildFolder, request: BuildRequest, calibrated: Sequence[Calibrated], progress: Progress
) -> tuple[list[Variant], list[Written]]:
    """Write each calibrator's cache and Q/DQ network."""
    variants: list[Variant] = []
    written: list[Written] = []
    with progress.task("write", sum(len(item.ranges) for item in calibrated)) as task:
        for item in calibrated:
            source = item.source
            if source.file_name:
                written += save_described(
                    folder.path / source.file_name, source.model, f"the {source.tag} float network"
                )
            for calibrator in source.calibrators:
                variant, cache = make_variant(
                    item, calibrator, request.trt_version, request.cache_algorithm, request.target
                )
                variants.append(variant)
                name, spec = calibrator.label, f"{calibrator.spec}{_belongs(source)}"
                written.append(_write(folder, f"{name}.cache", cache, f"cache of {spec}"))
                written += save_described(
                    folder.path / f"{name}.qdq.onnx", variant.quantized.model, f"Q/DQ network of {calibrator.spec}"
                )
                task.advance()
    return variants, written


def write_release(folder: BuildFolder, variant: Variant) -> Written:
    """Make a variant's cache the release artifact."""
    cache = (folder.path / f"{variant.calibrator.label}.cache").read_bytes()
    return _write(folder, RELEASE, cache, f"the release artifact: {variant.calibrator.label}.cache, for TensorRT <= 10")


def _belongs(source: Source) -> str:
    return f"; belongs to {source.file_name}" if source.file_name else ""


def make_variant(
    item: Calibrated, calibrator: BoundCalibrator, trt_version: str, cache_algorithm: str, target: Target
) -> tuple[Variant, bytes]:
    """Make what one calibrator gives: its Q/DQ network, and the bytes of its cache."""
    statistics, ranges = item.collected.statistics, item.ranges[calibrator.label]
    unseen = [name for name, seen in statistics.items() if not seen.count]
    entries, coverage = cache_entries(item.source.network, ranges, unseen)
    cache = render(entries, trt_version, cache_algorithm).render()
    amax = {name: found.amax for name, found in ranges.items() if statistics[name].count}
    quantized = quantize_model(item.source.model, amax, target, item.source.placement)
    return Variant(calibrator, ranges, coverage, quantized), cache


def write_records(folder: BuildFolder, calibrated: Sequence[Calibrated], choice: Choice) -> list[Written]:
    """Write the selection, and the statistics and ranges of each network; the first network's have the plain names."""
    write_selection(folder.path / SELECTION, choice.table, choice.selection)
    written = [describe_file(folder.path / SELECTION, "the images calibrated on, one a line")]
    images = dict(sorted(choice.digests.items()))
    for place, item in enumerate(calibrated):
        statistics = item.collected.statistics
        document = ranges_document(item.source.network, statistics, item.ranges, item.source.calibrators)
        packed = pack(statistics, {"images": images, "network": item.source.tag or "as given"})
        name = _named(STATISTICS, item.source, place)
        written.append(_write(folder, name, packed, "statistics of every tensor, mergeable"))
        name = _named(RANGES, item.source, place)
        written.append(_write(folder, name, json_bytes(document), "every tensor's range by every calibrator"))
    return written


def _named(name: str, source: Source, place: int) -> str:
    """The plain name for the first network, one with the network's tag in it for another."""
    stem, _, suffix = name.partition(".")
    return f"{stem}.{source.tag}.{suffix}" if place else name


def _write(folder: BuildFolder, name: str, data: bytes, purpose: str) -> Written:
    write_atomic(folder.path / name, data)
    return describe_file(folder.path / name, purpose)
