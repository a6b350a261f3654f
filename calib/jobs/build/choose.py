"""Scan the split and choose the calibration images."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from calib.core.plugins import bind_arguments, find_plugin, parse_spec
from calib.core.scoretable import take_rows
from calib.edges.builddir import BuildFolder
from calib.edges.manifest import load_dataset
from calib.edges.plugins import all_samplers
from calib.errors import UsageError
from calib.jobs.build.request import BuildRequest
from calib.jobs.evaluate.checks import check_foreign, require_labels
from calib.jobs.scan import scan
from calib.stages.amount import MOST
from calib.stages.sample import GIVEN, choose, refuse_shared, shared_images
from calib.types.data import Dataset
from calib.types.parameters import PluginSpec
from calib.types.progress import Progress
from calib.types.scores import ScoreTable, Selection


@dataclass(frozen=True)
class Choice:
    """The chosen images.

    Attributes:
        table: scores of every image of the split.
        selection: the chosen rows, best first.
        samplers: each sampler's spec and full parameters.
        notes: what scan and samplers had to say.
    """

    table: ScoreTable
    selection: Selection
    samplers: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...]

    @property
    def keys(self) -> list[str]:
        """Keys of the chosen images, best first."""
        return [self.table.keys[row] for row in self.selection.rows]

    @property
    def digests(self) -> dict[str, str]:
        """Sha256 of the chosen images by key."""
        return {self.table.keys[row]: str(self.table.columns["sha256"][row]) for row in self.selection.rows}

    def limited_to(self, keys: Collection[str]) -> Choice:
        """The same choice without the images that were not needed."""
        kept = [place for place, key in enumerate(self.keys) if key in keys]
        selection = replace(
            self.selection,
            rows=self.selection.rows[kept],
            scores=self.selection.scores[kept],
            samplers=tuple(self.selection.samplers[place] for place in kept),
        )
        return replace(self, selection=selection)


def choose_images(request: BuildRequest, dataset: Dataset, folder: BuildFolder, progress: Progress) -> Choice:
    """Scan the split, let the samplers choose, and check that nothing is shared with the evaluation split.

    Raises:
        UsageError: an unknown sampler or argument.
        ImageError: images that cannot be used, or labels of the evaluation split; all are named.
        ManifestError: the split to evaluate on lacks labels or classes.
        UsageError: it is the split calibrated on.
        LeakError: a chosen image occurs in the evaluation split.
    """
    registry, specs = all_samplers(), [parse_spec(text) for text in request.samplers]
    described = describe_samplers(request)
    held_out = _held_out(request)
    scanned = scan(dataset, folder.partial / "index.parquet", progress=progress, workers=request.workers)
    table = scanned.table
    wanted = auto_limit(len(table)) if request.num_images == "auto" else request.num_images
    selection = choose(table, specs, registry, wanted, request.seed)
    for note in (*scanned.notes, *selection.notes):
        progress.note(note)
    if request.num_images == "auto":
        selection = _shuffled(selection, request.seed)
    choice = Choice(table, selection, described, (*scanned.notes, *selection.notes))
    for others in held_out.values():
        _refuse_leaks(request, others, choice, folder, progress)
    return choice


def auto_limit(population: int) -> int:
    """Most images that ``--num-images auto`` takes: half of the split, so that a sampler still has a choice."""
    return min(max(population // 2, min(population, 64)), MOST)


def describe_samplers(request: BuildRequest) -> tuple[Mapping[str, Any], ...]:
    """Each sampler's spec with all its parameters.

    Raises:
        UsageError: an unknown sampler or argument.
    """
    registry = all_samplers()
    return tuple(_described(parse_spec(text), registry) for text in request.samplers)


def _described(spec: PluginSpec, registry: Mapping[str, Any]) -> Mapping[str, Any]:
    function = find_plugin("sampler", spec.name, registry)
    return {"spec": str(spec), "parameters": bind_arguments("sampler", spec, function, GIVEN)}


def _shuffled(selection: Selection, seed: int) -> Selection:
    """The same images in random order, so that any first part of them represents the whole."""
    order = np.random.default_rng(seed).permutation(len(selection.rows))
    return replace(
        selection,
        rows=selection.rows[order],
        scores=selection.scores[order],
        samplers=tuple(selection.samplers[place] for place in order),
    )


def _held_out(request: BuildRequest) -> dict[str, Dataset]:
    """The splits that must not be calibrated on; that to evaluate on can be scored."""
    found: dict[str, Dataset] = {}
    for flag, split in (("--evaluation-split", request.evaluation_split), ("--evaluate", request.evaluate)):
        if split is None:
            continue
        if split == request.split:
            raise UsageError(
                f"{flag} {split}",
                expected="another split than the one calibrated on",
                got=f"--split {request.split}",
                remedy="calibrate on training images and evaluate on others",
            )
        found[split] = load_dataset(request.data, split, request.root, request.preprocess)
    if request.evaluate is not None:
        require_labels(found[request.evaluate])
    return found


def _refuse_leaks(
    request: BuildRequest, others: Dataset, choice: Choice, folder: BuildFolder, progress: Progress
) -> None:
    """Compare the chosen images with those of a split that must not be calibrated on."""
    index = folder.partial / "evaluation-index.parquet"
    table = scan(others, index, progress=progress, workers=request.workers).table
    if others.split == request.evaluate:
        check_foreign(others, table, "stop")
    chosen = take_rows(choice.table, np.sort(choice.selection.rows))
    refuse_shared(shared_images(chosen, table), "the calibration images", f"split {others.split}")
