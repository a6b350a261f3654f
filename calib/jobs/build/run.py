"""``calib build``: manifest → scan → sample → collect → calibrate → write → report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from calib.core.attestation import make_statement
from calib.core.gate.provenance import SCHEMA
from calib.core.graph import analyse
from calib.core.plugins import parse_spec
from calib.core.scoremap import choose_output, output_makers
from calib.edges.builddir import PROVENANCE, RELEASE, REPORT, STATEMENT, BuildFolder, is_output
from calib.edges.feeds import FeedReader, bind_dataset
from calib.edges.files import write_atomic
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.edges.patterns import read_patterns
from calib.edges.plugins import all_calibrators
from calib.edges.provenance import host, library_versions, model_digest, now, sha256_bytes
from calib.edges.report.page import render_build_report
from calib.edges.runners.ort import require_provider, shared_memory_released
from calib.edges.written import describe_file, json_bytes
from calib.jobs.build.artifacts import (
    Calibrated,
    Variant,
    planned_names,
    rehearse,
    write_records,
    write_release,
    write_variants,
)
from calib.jobs.build.choose import Choice, choose_images, describe_samplers
from calib.jobs.build.collecting import make_collector
from calib.jobs.build.measuring import Measured, measure_variants
from calib.jobs.build.reporting import BuildFacts, make_report, placement_summary, provenance_groups
from calib.jobs.build.request import BuildRequest, build_fingerprint, check_request, collection_fingerprint
from calib.jobs.build.sources import Source, keep_float, make_sources
from calib.stages.amount import Settling, follow, image_counts
from calib.stages.batches import batch_length
from calib.stages.collect import Collected, Collector
from calib.stages.fitness import refuse_unfit
from calib.stages.floatlayers import find_float_layers
from calib.stages.inputs import InputBinding
from calib.stages.ranges import bind_calibrators, calibrate
from calib.types.data import Dataset
from calib.types.progress import Progress
from calib.types.statistics import DynamicRange

Ranges = Mapping[str, Mapping[str, DynamicRange]]


@dataclass(frozen=True)
class BuildResult:
    """What a build made.

    Attributes:
        folder: the build folder.
        provenance: what ``provenance.json`` holds.
        reused: whether a finished build of the same request was found and nothing was done.
        variants: what each calibrator gave; empty when reused.
    """

    folder: Path
    provenance: Mapping[str, Any]
    reused: bool
    variants: Sequence[Variant] = ()

    def summary(self) -> Iterator[tuple[str, str]]:
        """What to tell people, as name and text."""
        images = len(self.provenance["images"])
        yield "build", f"{self.folder}{' (finished before; nothing was done)' if self.reused else ''}"
        yield "images", f"{images} by {', '.join(item['spec'] for item in self.provenance['samplers'])}"
        for item in self.provenance["calibrators"]:
            yield item["name"], f"{item['name']}.cache, {item['name']}.qdq.onnx"
        for variant in self.variants[:1]:
            yield "placement", placement_summary(variant)
        evaluation = self.provenance.get("evaluation")
        if evaluation:
            words = evaluation["choice"]["words"] if evaluation["choice"] else f"{evaluation['file']} has the numbers"
            yield "measured", f"on {evaluation['split']}; {words}"
        yield "release", f"{self.folder / RELEASE} ({self.provenance['calibrators'][0]['name']})"
        yield "report", str(self.folder / REPORT)


def build(request: BuildRequest, progress: Progress) -> BuildResult:
    """Run a build, or go on with an interrupted one.

    Raises:
        CalibError: bad input of any kind; nothing that was finished is lost.
    """
    started = now()
    check_request(request)
    patterns = read_patterns(request.keep_float)
    calibrators = bind_calibrators(_calibrator_specs(request), all_calibrators())
    model = load_model(request.model)
    network = analyse(model)
    request = replace(request, keep_float=find_float_layers(model, patterns, request.target).patterns)
    dataset = load_dataset(request.data, request.split, request.root, request.preprocess)
    pictures = tuple(item for item in dataset.records if not is_output(request.output, item.path))
    dataset = replace(dataset, records=pictures)
    bindings = bind_dataset(network, dataset, request.model.name)
    batch_length(bindings, request.batch_size)
    folder = BuildFolder(request.output)
    with folder.locked():
        collection = collection_fingerprint(request, dataset, model_digest(request.model), library_versions())
        fingerprint = build_fingerprint(request, collection)
        finished = folder.finished(fingerprint)
        if finished is not None:
            return BuildResult(folder.path, finished, reused=True)
        folder.refuse_other_kind(training=False)
        refuse_unfit(model, network, request.model.name)
        sources = make_sources(model, network, calibrators, progress)
        sources = keep_float(sources, request.keep_float, request.target, progress)
        _try_out(request, dataset, sources, bindings)
        names = list(planned_names(sources))
        folder.refuse_foreign(names)
        collectors = [_collector(request, dataset, bindings, source) for source in sources]
        if folder.begin(collection, names):
            progress.note(f"going on with the build that was interrupted in {folder.path}")
        choice = choose_images(request, dataset, folder, progress)
        job = _Job(request, dataset, sources, collectors, folder, choice, collection, progress)
        return job.write(*job.calibrate(), fingerprint, started)


def _try_out(
    request: BuildRequest, dataset: Dataset, sources: Sequence[Source], bindings: Sequence[InputBinding]
) -> None:
    """Find out before the work begins what would end it: samplers, runtime, inputs, writers, the output to score."""
    describe_samplers(request)
    require_provider(request.provider)
    FeedReader(dataset, bindings).load(dataset.records[0].key)
    rehearse(sources, request)
    if request.evaluate is not None and dataset.classes is not None:
        network, classes = sources[0].network, len(dataset.classes.names)
        choose_output(network.outputs, output_makers(network), classes, request.output_name, request.model.name)


def _collector(request: BuildRequest, dataset: Dataset, bindings: Sequence[InputBinding], source: Source) -> Collector:
    return make_collector(
        source,
        dataset,
        bindings,
        place=request.model.name,
        provider=request.provider,
        batch_size=request.batch_size,
        non_finite=request.non_finite,
    )


def _calibrator_specs(request: BuildRequest) -> list[Any]:
    return [parse_spec(text) for text in request.calibrators or all_calibrators()]


@dataclass(frozen=True)
class _Job:
    """A build under way."""

    request: BuildRequest
    dataset: Dataset
    sources: Sequence[Source]
    collectors: Sequence[Collector]
    folder: BuildFolder
    choice: Choice
    collection: Mapping[str, Any]
    progress: Progress

    @property
    def workers(self) -> int:
        """Images in flight."""
        return self.request.workers or os.cpu_count() or 1

    def calibrate(self) -> tuple[list[Calibrated], Settling | None]:
        """Collect statistics and ask every calibrator; with ``auto``, until the ranges of the first network settle."""
        keys, settling = self.choice.keys, None
        if self.request.num_images == "auto":
            settling = self._settle(self.sources[0], self.collectors[0])
            keys = keys[: settling.images[-1]]
        pairs = zip(self.sources, self.collectors, strict=True)
        return [self._calibrate(source, collector, keys) for source, collector in pairs], settling

    def _settle(self, source: Source, collector: Collector) -> Settling:
        """Add images until the ranges settle."""
        steps: list[tuple[int, Ranges]] = []
        done: Collected | None = None
        for count in image_counts(len(self.choice.keys)):
            found = self._calibrate(source, collector, self.choice.keys[:count], done)
            done = found.collected
            steps.append((count, found.ranges))
            settling = follow(steps)
            if settling.settled:
                break
        return settling

    def _calibrate(
        self, source: Source, collector: Collector, keys: Sequence[str], before: Collected | None = None
    ) -> Calibrated:
        """Count the images, going on from this step's checkpoint or from the step before, and ask every calibrator."""
        digests = {key: self.choice.digests[key] for key in keys}
        step = f"{len(keys)}{source.tag}"
        saved = self.folder.load_statistics(digests, step)
        if saved is None and not source.tag:
            saved = self.folder.finished_statistics(self.collection, digests)
        with shared_memory_released():
            collected = collector.collect(
                sorted(keys),
                workers=self.workers,
                progress=self.progress,
                done=saved or before,
                checkpoint=lambda part: self.folder.save_statistics(part, digests, step),
            )
        return Calibrated(source, collected, calibrate(collected.statistics, source.calibrators, self.workers))

    def write(
        self,
        calibrated: Sequence[Calibrated],
        settling: Settling | None,
        fingerprint: Mapping[str, Any],
        started: str,
    ) -> BuildResult:
        """Bring the folder up to date; the provenance, which vouches for the rest, is written last."""
        choice = self.choice.limited_to(calibrated[0].collected.images)
        self.folder.remove_outdated()
        variants, written = write_variants(self.folder, self.request, calibrated, self.progress)
        written += write_records(self.folder, calibrated, choice)
        measured = self._measure(variants)
        if measured is not None:
            variants = list(measured.variants)
        written.insert(0, write_release(self.folder, variants[0]))
        document = self._provenance(fingerprint, choice, variants, measured)
        facts = BuildFacts(
            request=self.request,
            dataset=self.dataset,
            calibrated=calibrated,
            variants=variants,
            choice=choice,
            settling=settling,
            measured=measured,
            files=written,
            provenance=provenance_groups(document),
        )
        report = self.folder.path / REPORT
        write_atomic(report, render_build_report(make_report(facts)))
        written.append(describe_file(report, "the report to look at"))
        document["outputs"] = {item.name: item.sha256 for item in written}
        document["times"] = {"started": started, "finished": now()}
        provenance = json_bytes(document)
        statement = make_statement(document, {PROVENANCE: sha256_bytes(provenance)})
        write_atomic(self.folder.path / STATEMENT, json_bytes(statement))
        write_atomic(self.folder.path / PROVENANCE, provenance)
        self.folder.end()
        return BuildResult(self.folder.path, document, reused=False, variants=variants)

    def _measure(self, variants: Sequence[Variant]) -> Measured | None:
        if self.request.evaluate is None:
            return None
        return measure_variants(self.request, self.folder, variants, self.progress)

    def _provenance(
        self,
        fingerprint: Mapping[str, Any],
        choice: Choice,
        variants: Sequence[Variant],
        measured: Measured | None,
    ) -> dict[str, Any]:
        """Describe the build; the calibrators are listed with that of the release artifact first."""
        return {
            "schema": SCHEMA,
            "request": dict(fingerprint),
            "calibrators": [
                {"name": item.label, "spec": str(item.spec), "parameters": dict(item.arguments)}
                for item in (variant.calibrator for variant in variants)
            ],
            "evaluation": None if measured is None else dict(measured.record),
            "samplers": list(choice.samplers),
            "seed": self.request.seed,
            "preprocess": fingerprint["preprocess"],
            "images": dict(sorted(choice.digests.items())),
            "host": host(),
        }
