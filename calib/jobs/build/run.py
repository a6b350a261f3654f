"""``calib build``: manifest → scan → sample → collect → calibrate → write → report."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx

from calib.core.expose import expose
from calib.core.graph import Network, analyse
from calib.core.plugins import parse_spec
from calib.edges.builddir import PROVENANCE, RELEASE, REPORT, BuildFolder
from calib.edges.feeds import FeedReader
from calib.edges.files import write_atomic
from calib.edges.manifest import load_dataset, require_preprocess
from calib.edges.models import load_model
from calib.edges.plugins import all_calibrators
from calib.edges.provenance import host, library_versions, model_digest, now
from calib.edges.report.page import render_build_report
from calib.edges.runners.ort import OrtRunner
from calib.jobs.build.artifacts import (
    Variant,
    describe_file,
    json_bytes,
    write_records,
    write_variants,
)
from calib.jobs.build.choose import Choice, choose_images
from calib.jobs.build.reporting import BuildFacts, make_report, placement_summary, provenance_groups
from calib.jobs.build.request import BuildRequest, build_fingerprint, check_request, collection_fingerprint
from calib.stages.amount import Settling, follow, image_counts
from calib.stages.collect import Collected, Collector
from calib.stages.derive import ObservationPlan, plan_observations
from calib.stages.inputs import InputBinding, batch_length, bind_inputs
from calib.stages.ranges import BoundCalibrator, bind_calibrators, calibrate
from calib.types.data import Dataset
from calib.types.progress import Progress
from calib.types.statistics import DynamicRange

SCHEMA = 1
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
        yield "release", str(self.folder / RELEASE)
        yield "report", str(self.folder / REPORT)


def build(request: BuildRequest, progress: Progress) -> BuildResult:
    """Run a build, or go on with an interrupted one.

    Raises:
        CalibError: bad input of any kind; nothing that was finished is lost.
    """
    started = now()
    check_request(request)
    calibrators = bind_calibrators(_calibrator_specs(request), all_calibrators())
    model = load_model(request.model)
    network = analyse(model)
    dataset = load_dataset(request.data, request.split, request.root, request.preprocess)
    if _needs_preprocess(network, dataset):
        require_preprocess(dataset)
    bindings = bind_inputs(network, dataset.preprocess, dataset.inputs, request.model.name)
    folder = BuildFolder(request.output)
    versions = library_versions()
    collection = collection_fingerprint(request, dataset, model_digest(request.model), versions)
    fingerprint = build_fingerprint(request, collection)
    finished = folder.finished(fingerprint)
    if finished is not None:
        return BuildResult(folder.path, finished, reused=True)
    if folder.begin(collection):
        progress.note(f"going on with the build that was interrupted in {folder.path}")
    choice = choose_images(request, dataset, folder, progress)
    job = _Job(request, dataset, model, network, bindings, folder, choice, calibrators, collection, progress)
    collected, ranges, settling = job.calibrate()
    return job.write(collected, ranges, settling, fingerprint, started)


def _calibrator_specs(request: BuildRequest) -> list[Any]:
    return [parse_spec(text) for text in request.calibrators or all_calibrators()]


def _needs_preprocess(network: Network, dataset: Dataset) -> bool:
    return any(tensor.name not in dataset.inputs for tensor in network.inputs)


@dataclass(frozen=True)
class _Job:
    """A build under way."""

    request: BuildRequest
    dataset: Dataset
    model: onnx.ModelProto
    network: Network
    bindings: Sequence[InputBinding]
    folder: BuildFolder
    choice: Choice
    calibrators: Sequence[BoundCalibrator]
    collection: Mapping[str, Any]
    progress: Progress

    @property
    def workers(self) -> int:
        """Images in flight."""
        return self.request.workers or os.cpu_count() or 1

    def calibrate(self) -> tuple[Collected, Ranges, Settling | None]:
        """Collect the statistics and ask every calibrator; with ``auto``, until the ranges settle."""
        collector = self._collector()
        if self.request.num_images != "auto":
            collected = self._collect(collector, self.choice.keys, None)
            return collected, calibrate(collected.statistics, self.calibrators, self.workers), None
        order = self.choice.keys
        steps: list[tuple[int, Ranges]] = []
        done: Collected | None = None
        for count in image_counts(len(order)):
            done = self._collect(collector, order[:count], done)
            steps.append((count, calibrate(done.statistics, self.calibrators, self.workers)))
            settling = follow(steps)
            if settling.settled:
                break
        return done or Collected(), steps[-1][1], settling

    def _collector(self) -> Collector:
        plan = plan_observations(self.network)
        runner = self._runner(plan)
        others = set(runner.outputs) - set(runner.float_outputs)
        if others:  # types behind custom operators, which only the runtime knows
            plan = plan_observations(self.network, others)
            runner = self._runner(plan)
        rows, fill = batch_length(self.network, self.request.batch_size)
        load = FeedReader(self.dataset, self.bindings).load
        return Collector(self.network, plan, runner, load, rows=rows, fill=fill, non_finite=self.request.non_finite)

    def _runner(self, plan: ObservationPlan) -> OrtRunner:
        names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
        return OrtRunner(expose(self.model, names), self.request.model.name, self.request.provider)

    def _collect(self, collector: Collector, keys: Sequence[str], before: Collected | None) -> Collected:
        """Count the images, going on from this step's checkpoint, or from the step before."""
        digests = {key: self.choice.digests[key] for key in keys}
        saved = self.folder.load_statistics(digests, len(keys))
        saved = saved or self.folder.finished_statistics(self.collection, digests)
        return collector.collect(
            sorted(keys),
            workers=self.workers,
            progress=self.progress,
            done=saved or before,
            checkpoint=lambda part: self.folder.save_statistics(part, digests, len(keys)),
        )

    def write(
        self,
        collected: Collected,
        ranges: Ranges,
        settling: Settling | None,
        fingerprint: Mapping[str, Any],
        started: str,
    ) -> BuildResult:
        """Bring the folder up to date; the provenance, which vouches for the rest, is written last."""
        choice = self.choice.limited_to(collected.images)
        calibrated = [(item, ranges[item.label]) for item in self.calibrators]
        self.folder.remove_outdated()
        variants, written = write_variants(
            self.folder, self.model, self.network, self.request, calibrated, collected.statistics, self.progress
        )
        written += write_records(self.folder, self.network, collected.statistics, variants, choice)
        document = self._provenance(fingerprint, choice)
        facts = BuildFacts(
            request=self.request,
            dataset=self.dataset,
            network=self.network,
            statistics=collected.statistics,
            variants=variants,
            choice=choice,
            settling=settling,
            files=written,
            provenance=provenance_groups(document),
        )
        report = self.folder.path / REPORT
        write_atomic(report, render_build_report(make_report(facts)))
        written.append(describe_file(report, "the report to look at"))
        document["outputs"] = {item.name: item.sha256 for item in written}
        document["times"] = {"started": started, "finished": now()}
        write_atomic(self.folder.path / PROVENANCE, json_bytes(document))
        self.folder.end()
        return BuildResult(self.folder.path, document, reused=False, variants=variants)

    def _provenance(self, fingerprint: Mapping[str, Any], choice: Choice) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "request": dict(fingerprint),
            "calibrators": [
                {"name": item.label, "spec": str(item.spec), "parameters": dict(item.arguments)}
                for item in self.calibrators
            ],
            "samplers": list(choice.samplers),
            "seed": self.request.seed,
            "preprocess": fingerprint["preprocess"],
            "images": dict(sorted(choice.digests.items())),
            "host": host(),
        }
