"""``calib demo``: the main job on the embedded scenes and network, twice, and what every variant costs in accuracy."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import analyse
from calib.demo.accuracy import Scored, Slice, count_image, evaluation_document, slices_of
from calib.demo.dataset import LEVELS, plan_split, write_dataset
from calib.demo.page import render_demo_page
from calib.edges.builddir import REPORT
from calib.edges.feeds import FeedReader
from calib.edges.files import make_output_folder, write_atomic
from calib.edges.labels import LabelReader
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.edges.runners.ort import OrtRunner
from calib.jobs.build import BuildRequest, BuildResult, build
from calib.jobs.build.artifacts import json_bytes
from calib.stages.inputs import bind_inputs
from calib.types.data import Dataset
from calib.types.progress import Progress

MODEL = "demo.onnx"
EVALUATION = "evaluation.json"
REFERENCE = "float"
IMAGES = 48
CHOICES: Mapping[str, str] = {
    "random": "random",
    "enriched": "mix:dark-regions=0.3,small-objects=0.3,random=0.4",
}
"""Build folder below ``builds/`` and its sampler: what is usually done, and what calib can do."""


@dataclass(frozen=True)
class DemoRequest:
    """The arguments of the demo.

    Attributes:
        output: its folder.
        evaluate: measure accuracy as well.
        seed: of every random choice; the scenes are always the same.
        workers: threads; None for one a core.
    """

    output: Path
    evaluate: bool = True
    seed: int = 0
    workers: int | None = None


@dataclass(frozen=True)
class DemoResult:
    """What the demo made.

    Attributes:
        report: the page to open.
        builds: by name.
        evaluation: what ``evaluation.json`` holds; None when accuracy was not measured.
    """

    report: Path
    builds: Mapping[str, BuildResult]
    evaluation: Mapping[str, Any] | None


def run_demo(request: DemoRequest, progress: Progress) -> DemoResult:
    """Draw the scenes, build with two samplers, measure every variant. Interrupted, it goes on where it stopped.

    Raises:
        CalibError: the folder cannot be written, or ONNX Runtime is missing.
    """
    folder = make_output_folder(request.output)
    manifest = write_dataset(folder / "data", progress, workers=_workers(request))
    write_atomic(folder / MODEL, (files("calib.demo") / "network.onnx").read_bytes())
    builds = {name: build(_build_request(request, manifest, name), progress) for name in CHOICES}
    if not request.evaluate:
        return DemoResult(next(iter(builds.values())).folder / REPORT, builds, None)
    evaluation = _evaluate(request, load_dataset(str(manifest), "val"), _models(folder, builds), progress)
    write_atomic(folder / EVALUATION, json_bytes(evaluation))
    report = folder / REPORT
    write_atomic(report, render_demo_page(evaluation, CHOICES, IMAGES, _scenes_to_show()))
    return DemoResult(report, builds, evaluation)


def _scenes_to_show() -> list[tuple[str, NDArray[np.uint8], NDArray[np.uint8]]]:
    """Draw the first two scenes of each light of ``val`` for the page."""
    planned = plan_split("val")
    first = [scene for light in LEVELS for scene in [item for item in planned if item.group == light][:2]]
    return [(scene.name, drawn.image, drawn.label) for scene in first for drawn in [scene.draw()]]


def _workers(request: DemoRequest) -> int:
    return request.workers or os.cpu_count() or 1


def _build_request(request: DemoRequest, manifest: Path, name: str) -> BuildRequest:
    return BuildRequest(
        model=request.output / MODEL,
        data=str(manifest),
        output=request.output / "builds" / name,
        split="calib",
        samplers=(CHOICES[name],),
        num_images=IMAGES,
        evaluation_split="val",
        seed=request.seed,
        workers=request.workers,
    )


def _models(folder: Path, builds: Mapping[str, BuildResult]) -> list[tuple[str, Path]]:
    """Name every network to score: the float one, then each build's variants."""
    variants = [
        (f"{name}, {item['name']}", result.folder / f"{item['name']}.qdq.onnx")
        for name, result in builds.items()
        for item in result.provenance["calibrators"]
    ]
    return [(REFERENCE, folder / MODEL), *variants]


def _evaluate(
    request: DemoRequest, dataset: Dataset, models: Sequence[tuple[str, Path]], progress: Progress
) -> dict[str, Any]:
    scorer = _Scorer(dataset, models[0][1])
    with progress.task("measuring accuracy", len(models)) as task, ThreadPoolExecutor(_workers(request)) as pool:
        scored = []
        for name, path in models:
            scored.append(scorer.score(name, path, request.output, pool))
            task.advance()
    return evaluation_document(scored, scorer.slices, request.seed)


class _Scorer:
    """Scores networks on one split, which is decoded once."""

    def __init__(self, dataset: Dataset, model: Path) -> None:
        bindings = bind_inputs(analyse(load_model(model)), dataset.preprocess, dataset.inputs, model.name)
        reader, labels = FeedReader(dataset, bindings), LabelReader(dataset)
        self._feeds = [reader.load(record.key) for record in dataset.records]
        self._labels = [labels.read(record).ids for record in dataset.records]
        self.slices: tuple[Slice, ...] = slices_of([record.group["light"] for record in dataset.records])

    def score(self, name: str, path: Path, root: Path, pool: ThreadPoolExecutor) -> Scored:
        """Run a network on every image; Q/DQ is computed literally, so that no processor's kernels enter."""
        run = OrtRunner(load_model(path), path.name, optimize=False).run
        counts = pool.map(lambda pair: count_image(run, *pair), zip(self._feeds, self._labels, strict=True))
        return Scored(name, path.relative_to(root).as_posix(), np.stack(list(counts)))
