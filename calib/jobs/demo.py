"""``calib demo``: the main job on the embedded scenes and network, twice, and what every variant costs in accuracy."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.demo.dataset import LEVELS, plan_split, write_dataset
from calib.demo.page import render_demo_page
from calib.edges.builddir import REPORT
from calib.edges.files import make_output_folder, write_atomic
from calib.jobs.build import BuildRequest, BuildResult, build
from calib.jobs.evaluate import EvaluateRequest, run_evaluation
from calib.types.progress import Progress

MODEL = "demo.onnx"
EVALUATION = "evaluation"
"""Folder of the evaluation below the demo's."""
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
    evaluation = _evaluate(request, manifest, builds, progress)
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


def _evaluate(
    request: DemoRequest, manifest: Path, builds: Mapping[str, BuildResult], progress: Progress
) -> dict[str, Any]:
    """Measure the float network and every variant of every build on the scenes of ``val``."""
    folders = [str(build.folder) for build in builds.values()]
    asked = EvaluateRequest(
        models=[str(request.output / MODEL), *folders],
        data=str(manifest),
        output=request.output / EVALUATION,
        split="val",
        reference=str(request.output / MODEL),
        pictures=4,
        seed=request.seed,
        workers=request.workers,
    )
    return run_evaluation(asked, progress).document
