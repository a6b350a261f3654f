"""The diagnosis job: load, climb the ladder, align the networks, examine what departs, decide, write."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from calib.edges.files import make_output_folder, write_atomic
from calib.edges.manifest import load_dataset, parse_preprocess, require_preprocess
from calib.edges.progress import SilentProgress
from calib.edges.runners.loader import OrtRuntime
from calib.edges.runners.ort import shared_memory_released
from calib.jobs.diagnose.climb import Climb, Climber, chosen_records
from calib.jobs.diagnose.document import make_document, tensor_table
from calib.jobs.diagnose.parts import Part, load_part
from calib.jobs.diagnose.report import write_report
from calib.jobs.diagnose.request import DiagnoseRequest
from calib.jobs.diagnose.rungs import make_rungs
from calib.jobs.diagnose.tracing import filled, trace_reference, with_float_weights
from calib.jobs.diagnose.verdict import Verdict, decide
from calib.stages.diagnose.cachecheck import CacheCheck, cache_cause, check_cache
from calib.stages.diagnose.examine import Examination, examine
from calib.stages.diagnose.onnxtrace import OnnxTrace, exposed
from calib.stages.diagnose.oracles import Disagreement, disagreements, oracle_remark
from calib.stages.diagnose.profile import TensorError, profile
from calib.stages.diagnose.trace import Trace
from calib.types.data import Dataset
from calib.types.diagnosis import STAGES, Cause
from calib.types.progress import Progress
from calib.types.runner import Feeds

DOCUMENT, TENSORS = "diagnosis.json", "diagnosis_tensors.csv"
SCRATCH = ".diagnosis"
MEASURED = 4
"""Images on which Q/DQ pairs and caches are held against activations."""


@dataclass(frozen=True)
class Diagnosis:
    """A finished diagnosis.

    Attributes:
        folder: where its files are.
        document: what ``diagnosis.json`` holds.
        verdict: what it comes to.
    """

    folder: Path
    document: dict[str, Any]
    verdict: Verdict


def diagnose(
    reference: str | os.PathLike[str],
    candidate: str | os.PathLike[str],
    data: str | os.PathLike[str],
    *,
    output: str | os.PathLike[str],
    progress: Progress | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Diagnose from Python; the same files are written as by ``calib diagnose``.

    Args:
        reference: the network as it should be.
        candidate: the network that lost accuracy.
        data: manifest, list file or name of a shipped manifest.
        output: folder of the results.
        progress: shows how far it is; default silent.
        options: further fields of :class:`DiagnoseRequest`.

    Returns:
        what ``diagnosis.json`` holds.

    Raises:
        CalibError: something given cannot be used.
        TypeError: an option does not exist.
    """
    names = [os.fspath(item) for item in (reference, candidate, data)]
    request = DiagnoseRequest(names[0], names[1], names[2], Path(output), **options)
    return run_diagnosis(request, progress or SilentProgress()).document


@shared_memory_released()
def run_diagnosis(request: DiagnoseRequest, progress: Progress) -> Diagnosis:
    """Run a diagnosis.

    Raises:
        CalibError: something given cannot be used; see the subclasses.
    """
    whole = load_dataset(request.data, request.split, request.root, request.preprocess)
    require_preprocess(whole)
    dataset = chosen_records(whole, request.num_images)
    reference, candidate = _parts(request, dataset)
    make_output_folder(request.output)
    make_output_folder(request.output / SCRATCH)
    candidate = with_float_weights(dataset, reference, candidate)
    rungs, contestants = make_rungs(reference, candidate, request.provider)
    climber = Climber(request, dataset, rungs, contestants, progress)
    climb = climber.climb()
    work = _Work(request, dataset, reference, candidate, climber, climb, progress)
    return work.finish()


def _parts(request: DiagnoseRequest, dataset: Dataset) -> tuple[Part, Part]:
    stated = None
    if request.candidate_preprocess is not None:
        stated = parse_preprocess(request.candidate_preprocess, _stated(dataset))
    reference = load_part("reference", request.reference, dataset, request.reference_weights, None, None)
    candidate = load_part("candidate", request.candidate, dataset, request.candidate_weights, stated, request.cache)
    return reference, candidate


def _stated(dataset: Dataset) -> dict[str, Any]:
    """The manifest's preprocessing as it is written, for what the candidate's own does not state."""
    if dataset.preprocess is None:
        return {}
    values = vars(dataset.preprocess)
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in values.items() if value is not None
    }


@dataclass
class _Work:
    request: DiagnoseRequest
    dataset: Dataset
    reference: Part
    candidate: Part
    climber: Climber
    climb: Climb
    progress: Progress
    causes: list[Cause] = field(default_factory=list)
    remarks: list[Cause] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def runtime(self) -> OrtRuntime:
        """Runs single steps on the CPU."""
        return OrtRuntime(self.candidate.address)

    def finish(self) -> Diagnosis:
        """Examine, decide and write."""
        self.notes += [*self.reference.notes, *self.candidate.notes]
        found: Examination | None = None
        tensors: list[TensorError] = []
        oracles: list[Disagreement] = []
        if self.candidate.model is not None:
            with self.progress.task("examining", 4) as task:
                trace = self._trace(self.climb.worst)
                task.advance()
                found = None if trace is None else self._examine(trace)
                task.advance()
                if found is not None:
                    tensors = self._profile(found)
                task.advance()
                oracles = self._oracles(found)
                task.advance()
        cache = self._cache(found)
        self.causes.sort(key=lambda cause: STAGES.index(cause.stage))
        verdict = decide(self.causes, self.climb.standings, self.remarks)
        document = make_document(
            verdict, (self.reference, self.candidate), self.dataset, self.climb, found, self.remarks, self.causes,
            tensors, cache, oracles, self.notes,
        )  # fmt: skip
        return self._write(document, tensors, verdict)

    def _feeds(self, part: Part, key: str) -> Feeds:
        return filled(part, self.climber.feeds(part, key))

    def _trace(self, key: str) -> Trace | None:
        return trace_reference(self.reference, self._feeds(self.reference, key))

    def _examine(self, trace: Trace) -> Examination | None:
        model = self.candidate.model
        if model is None:
            return None
        others = [record.key for record in self.dataset.records if record.key != self.climb.worst]
        keys = [self.climb.worst, *others[: MEASURED - 1]]
        images = [self._feeds(self.candidate, key) for key in keys]
        reading = next((r for name, r in self.climb.readings.items() if name != "reference"), None)
        found = examine(
            trace, model, images, self.runtime, reading.name if reading else None, self.candidate.address,
            [partial(self._other, key) for key in keys[1:]],
        )  # fmt: skip
        self.causes += found.causes
        self.remarks += found.remarks
        lost = found.comparison.alignment.lost
        if lost:
            self.notes.append(f"{len(lost)} tensors of the candidate have no counterpart, the first {lost[0]}")
        if found.candidate.failure:
            self.notes.append(f"the candidate does not run as a whole: {found.candidate.failure}")
        return found

    def _other(self, key: str) -> tuple[Trace, Feeds]:
        trace = self._trace(key)
        if trace is None:
            raise AssertionError(key)
        return trace, self._feeds(self.candidate, key)

    def _profile(self, found: Examination) -> list[TensorError]:
        quantized = self.candidate.model if found.twin is not None else None
        feeds = self._feeds(self.candidate, self.climb.worst)
        return profile(found.comparison, found.candidate, quantized, feeds, self.runtime)

    def _oracles(self, found: Examination | None) -> list[Disagreement]:
        """The runtime against the specification, on the candidate's float part."""
        if found is None:
            return []
        judged = disagreements(found.candidate, self.runtime, found.comparison.alignment.value)
        known = {cause.node for cause in self.causes}
        self.remarks += [oracle_remark(item) for item in judged if item.node not in known]
        return judged

    def _cache(self, found: Examination | None) -> CacheCheck | None:
        table, part = self.candidate.cache, self.candidate
        if table is None or found is None:
            return None
        observed = self._observed(found.candidate)
        owner = self.reference if part.folder is not None else part
        here = list(owner.files.values()) if owner.model is not None and part.built_from else []
        check = check_cache(table, observed, (list(part.built_from.values()), here))
        cause = cache_cause(check, self.request.cache or part.address)
        if cause is not None and cause.severity == "fault":
            self.causes.append(cause)
        elif cause is not None:
            self.remarks.append(cause)
        return check

    def _observed(self, candidate: OnnxTrace) -> dict[str, float]:
        """Largest magnitude of every activation over a few images."""
        names = [name for step in candidate.steps for name in step.outputs]
        found: dict[str, float] = {}
        for record in self.dataset.records[:MEASURED]:
            feeds = self._feeds(self.candidate, record.key)
            values = [*feeds.items(), *exposed(candidate, names, feeds, self.runtime)]
            for name, array in values:
                if array.dtype.kind == "f" and array.size:
                    found[name] = max(found.get(name, 0.0), float(np.abs(array).max()))
        return found

    def _write(self, document: dict[str, Any], tensors: Sequence[TensorError], verdict: Verdict) -> Diagnosis:
        folder = self.request.output
        plain = json.loads(json.dumps(_finite(document)))
        write_atomic(folder / DOCUMENT, (json.dumps(plain, indent=2) + "\n").encode())
        write_atomic(folder / TENSORS, tensor_table(tensors))
        write_report(folder, plain, tensors, self.climb, self.climber)
        shutil.rmtree(folder / SCRATCH, ignore_errors=True)
        return Diagnosis(folder, plain, verdict)


def _finite(value: Any) -> Any:
    """JSON values: infinities as text, NaN as null, arrays and tuples as lists."""
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | frozenset):
        return [_finite(item) for item in value]
    if hasattr(value, "tolist"):
        return _finite(value.tolist())
    if isinstance(value, float):
        if np.isnan(value):
            return None
        return value if np.isfinite(value) else ("inf" if value > 0 else "-inf")
    return str(value) if isinstance(value, Path) else value
