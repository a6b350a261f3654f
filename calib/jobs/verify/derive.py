"""Make every file that follows from the statistics once more, and compare.

Calibrators, cache and Q/DQ writer are pure, so a scale that was edited shows even where every recorded hash was edited
along with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calib.core.gate.consistency import ranges_difference, statistics_problems
from calib.core.gate.provenance import REBUILD, is_training, kept_in_float
from calib.core.plugins import parse_spec
from calib.core.statfile import unpack
from calib.core.trtcache import parse
from calib.edges.builddir import STATISTICS
from calib.edges.plugins import all_calibrators
from calib.edges.progress import SilentProgress
from calib.edges.written import json_bytes
from calib.errors import CalibError, FormatError
from calib.jobs.build.artifacts import Calibrated, make_variant
from calib.jobs.build.sources import Source, keep_float, make_sources
from calib.jobs.verify.comparing import (
    UNREADABLE,
    check_cache,
    check_coverage,
    check_images,
    check_network,
    check_release,
    compared,
    reason,
)
from calib.jobs.verify.subject import Subject
from calib.jobs.verify.trained import check_training
from calib.stages.collect import Collected
from calib.stages.ranges import BoundCalibrator, bind_calibrators, calibrate
from calib.stages.rangesfile import ranges_document
from calib.types.gate import Check, few
from calib.types.statistics import TensorStatistics

OTHER_VERSION = "verify with the calib that built it (see `versions`), or build again with this one"


@dataclass(frozen=True)
class Derived:
    """What the statistics give.

    Attributes:
        checks: one a file, and those of the statistics themselves.
        calibrated: networks with their statistics and ranges; empty where they could not be recomputed.
    """

    checks: Sequence[Check]
    calibrated: Sequence[Calibrated] = ()


def check_derivation(subject: Subject, workers: int) -> Derived:
    """Recompute ranges, caches and Q/DQ networks from ``statistics.npz`` and compare them with the files.

    Of a training, whose ranges are learnt, the Q/DQ network and the cache follow from ranges and trained weights.
    """
    if is_training(subject.provenance):
        return Derived(check_training(subject))
    try:
        calibrators = _calibrators(subject)
        sources = make_sources(subject.model, subject.network, calibrators, SilentProgress())
        asked = kept_in_float(subject.provenance)
        sources = keep_float(sources, asked, subject.request["target"], SilentProgress())
    except CalibError as error:
        return Derived([Check("calibrators", "fail", f"{error.place}: {error.got}", error.remedy)])
    checks = list(_check_parameters(subject, calibrators))
    calibrated = []
    for place, source in enumerate(sources):
        infix = f".{source.tag}" if place else ""
        found = _Recomputation(subject, source, infix, workers)
        checks += found.checks()
        calibrated += [found.calibrated] if found.calibrated else []
    checks += [check_images(subject), check_release(subject)]
    return Derived(checks, calibrated)


def _calibrators(subject: Subject) -> tuple[BoundCalibrator, ...]:
    """The calibrators in the order they were asked for; the provenance lists the release artifact's first."""
    registry = all_calibrators()
    asked = list(subject.request["calibrators"]) or list(registry)
    recorded = sorted(
        (item["spec"] for item in subject.provenance["calibrators"]),
        key=lambda spec: asked.index(spec) if spec in asked else len(asked),
    )
    return bind_calibrators([parse_spec(spec) for spec in recorded], registry)


def _check_parameters(subject: Subject, calibrators: Sequence[BoundCalibrator]) -> Iterator[Check]:
    recorded = subject.provenance["calibrators"]
    bound = [{"name": item.label, "spec": str(item.spec), "parameters": dict(item.arguments)} for item in calibrators]
    known = json.loads(json.dumps(bound))
    differing = [entry["name"] for entry in recorded if entry not in known]
    if differing:
        yield Check("calibrators", "fail", f"recorded with other parameters: {few(differing)}", OTHER_VERSION)


class _Recomputation:
    """Everything that follows from the statistics of one network.

    Args:
        subject: the folder.
        source: the network and the calibrators that worked on it.
        infix: part of the file names of all networks but the first.
        workers: threads.
    """

    def __init__(self, subject: Subject, source: Source, infix: str, workers: int) -> None:
        self._subject, self._source, self._infix, self._workers = subject, source, infix, workers
        self._statistics_name = STATISTICS.replace(".npz", f"{infix}.npz")
        self.calibrated: Calibrated | None = None

    def checks(self) -> Iterator[Check]:
        """Compare file by file; where the statistics are unsound, nothing that rests on them is looked at."""
        statistics, check = self._statistics()
        yield check
        if check.status != "pass":
            yield Check("ranges", "skip", f"cannot be recomputed: see {check.name}")
            return
        try:
            ranges = calibrate(statistics, self._source.calibrators, self._workers)
        except (CalibError, ArithmeticError, ValueError, IndexError) as error:
            yield Check(self._statistics_name, "fail", f"no ranges can be computed: {error}", REBUILD)
            return
        self.calibrated = Calibrated(self._source, Collected(frozenset(), statistics), ranges)
        yield self._check_ranges(self.calibrated)
        yield from self._check_float_network()
        for calibrator in self._source.calibrators:
            yield from self._check_variant(self.calibrated, calibrator)

    def _statistics(self) -> tuple[Mapping[str, TensorStatistics], Check]:
        name = self._statistics_name
        try:
            statistics, about = unpack((self._subject.folder / name).read_bytes(), name)
        except (FormatError, OSError) as error:
            return {}, Check(name, "fail", f"cannot be read: {reason(error)}", REBUILD)
        problems = statistics_problems(statistics, self._source.network)
        images = about.get("images")
        if images != self._subject.provenance["images"]:
            problems.append("were collected on other images than provenance.json names")
        if problems:
            return statistics, Check(name, "fail", "; ".join(problems), REBUILD)
        return statistics, Check(name, "pass", f"{len(statistics)} tensors, of this network and these images")

    def _check_ranges(self, calibrated: Calibrated) -> Check:
        name = f"ranges{self._infix}.json"
        statistics = calibrated.collected.statistics
        wanted = ranges_document(self._source.network, statistics, calibrated.ranges, self._source.calibrators)
        try:
            data = (self._subject.folder / name).read_bytes()
            differences = [] if data == json_bytes(wanted) else ranges_difference(json.loads(data), wanted)
        except UNREADABLE as error:
            return Check(name, "fail", f"cannot be read: {reason(error)}", REBUILD)
        if data != json_bytes(wanted) and not differences:
            differences = ["the same ranges in other bytes"]
        return compared(name, differences, "what the statistics give, exactly")

    def _check_float_network(self) -> Iterator[Check]:
        name = self._source.file_name
        if name and self._subject.same_model:
            yield check_network(self._subject.folder / name, self._source.model, "the equalized network")

    def _check_variant(self, calibrated: Calibrated, calibrator: BoundCalibrator) -> Iterator[Check]:
        request, label = self._subject.request, calibrator.label
        try:
            variant, cache = make_variant(
                calibrated, calibrator, request["trt_version"], request["cache_algorithm"], request["target"]
            )
        except CalibError as error:
            yield Check(label, "fail", f"cannot be made again: {error.got}", error.remedy)
            return
        yield check_cache(self._subject.folder / f"{label}.cache", parse(cache))
        if label == self._subject.labels[0]:
            yield check_coverage(variant.coverage)
        if self._subject.same_model:
            yield check_network(self._subject.folder / f"{label}.qdq.onnx", variant.quantized.model, "Q/DQ network")
        else:
            yield Check(f"{label}.qdq.onnx", "skip", "needs the network it was built from")
