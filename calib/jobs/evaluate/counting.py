"""Counting: every network on every image, going on from what an earlier run left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from calib.core.scoremap import OutputReading, choose_output, with_threshold
from calib.edges.evaluation.loading import Loaded, describe_outputs
from calib.edges.evaluation.matrices import Journal, Matrices, gather, load_matrices, save_matrices
from calib.edges.feeds import FeedReader
from calib.edges.hardware import read_cpu
from calib.edges.images import read_picture
from calib.edges.labels import LabelReader
from calib.errors import CalibError, UsageError
from calib.jobs.evaluate.checks import digest_labels
from calib.jobs.evaluate.request import EvaluateRequest, fingerprint, is_reusable
from calib.stages.evaluate import Contender, Evaluator, Scene
from calib.stages.scoring import score_all
from calib.stages.worst import WorstMaps
from calib.types.data import Dataset, ImageRecord
from calib.types.progress import Progress
from calib.types.runner import Feeds
from calib.types.scores import ScoreTable

MATRICES = "matrices.npz"
SCRATCH = ".evaluation"
JOURNAL = "journal"
MOST_PICTURES = 60
"""Worst images shown at most, over all networks; each takes about 60 KB."""


@dataclass(frozen=True)
class Counted:
    """The counts of an evaluation, and how many images an earlier run had left."""

    matrices: Matrices
    reused: int


@dataclass(frozen=True)
class Counting:
    """Networks and images of an evaluation.

    Attributes:
        request: what was asked for.
        dataset: the split.
        table: its scores.
        loaded: the networks; the reference, if there is one, first.
        reference: its place, or None.
        progress: shows how far it is.
    """

    request: EvaluateRequest
    dataset: Dataset
    table: ScoreTable
    loaded: Sequence[Loaded]
    reference: int | None
    progress: Progress
    _feeders: dict[Any, Callable[[Scene], Feeds]] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """Images in flight."""
        return self.request.workers or read_cpu().usable

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.dataset.classes.names if self.dataset.classes else ()

    @property
    def colours(self) -> tuple[tuple[int, int, int], ...]:
        """RGB colours of the classes."""
        return self.dataset.classes.colours if self.dataset.classes else ()

    @cached_property
    def readings(self) -> tuple[OutputReading, ...]:
        """What each network's output is.

        Raises:
            UsageError: an output has to be named, or there is none for a threshold.
            ModelError: there is no class map among the outputs.
        """
        found = tuple(self._read(item) for item in self.loaded)
        threshold = self.request.threshold
        if threshold is not None and all(reading.kind != "binary" for reading in found):
            raise UsageError(
                f"--threshold {threshold:g}",
                expected="a network with one channel for two classes",
                got=f"{found[0].name}: {found[0].words}",
                remedy="leave it out: the best class is taken of several channels",
            )
        return found

    @cached_property
    def evaluator(self) -> Evaluator:
        """Scores images."""
        if self.dataset.preprocess is None:
            raise AssertionError(self.dataset.name)
        contenders = [
            Contender(item.source.name, item.runner, self._feeder(item), reading, item.rows)
            for item, reading in zip(self.loaded, self.readings, strict=True)
        ]
        luma = int(self.table.thresholds["dark_luma"])
        known = self.reference is not None
        worst = WorstMaps(self.pictures)
        return Evaluator(contenders, len(self.classes), self.dataset.preprocess, luma, has_reference=known, worst=worst)

    @property
    def pictures(self) -> int:
        """Worst images to show of each network."""
        others = max(1, len(self.loaded) - (self.reference is not None))
        return min(self.request.pictures, max(1, MOST_PICTURES // others)) if self.request.pictures else 0

    def load(self, key: str) -> Scene:
        """Read and decode an image and its label."""
        record = self._records[key]
        label = self._labels.read(record).ids
        picture = read_picture(record.path, expected_size=(label.shape[0], label.shape[1]))
        return Scene(key, picture.pixels, label)

    def count(self) -> Counted:
        """Count every image that an earlier run of the same request has not.

        Raises:
            CalibError: an image, a label or a network cannot be used.
            OutputError: the counts cannot be written.
        """
        labels = digest_labels(self.dataset, self.workers)
        networks = list(zip(self.loaded, self.readings, strict=True))
        facts = fingerprint(self.request, self.dataset, self.table, labels, networks, self.reference)
        path = self.request.output / MATRICES
        finished = _finished(path, facts)
        if finished is not None:
            self.progress.note(f"{MATRICES} holds the counts of this request: no forward pass needed")
            return Counted(finished, len(finished.keys))
        journal_path = self.request.output / SCRATCH / JOURNAL
        if not is_reusable(facts):
            journal_path.unlink(missing_ok=True)
        with Journal(journal_path, facts) as journal:
            reused = len(journal.done)
            self._score(journal)
        names = [item.source.name for item in self.loaded]
        matrices = gather(facts, names, self.classes, list(journal.done.values()))
        save_matrices(path, matrices)
        journal_path.unlink()
        return Counted(matrices, reused)

    @cached_property
    def _labels(self) -> LabelReader:
        return LabelReader(self.dataset)

    @cached_property
    def _records(self) -> dict[str, ImageRecord]:
        return {record.key: record for record in self.dataset.records}

    def _read(self, item: Loaded) -> OutputReading:
        outputs = item.outputs
        if not outputs:
            feeds = self._feeder(item)(self.load(self.table.keys[0]))
            outputs = describe_outputs(item.runner, feeds)
        name, classes = self.request.output_name, len(self.classes)
        reading = choose_output(outputs, item.makers, classes, name, item.source.address)
        return with_threshold(reading, self.request.threshold)

    def _feeder(self, item: Loaded) -> Callable[[Scene], Feeds]:
        """What prepares a network's inputs; networks with the same inputs share it, and so its results."""
        kind = tuple(
            (binding.tensor.name, binding.tensor.elem_type, binding.tensor.shape, binding.source)
            for binding in item.bindings
        )
        if kind not in self._feeders:
            reader = FeedReader(self.dataset, item.bindings)
            self._feeders[kind] = lambda scene: reader.feeds(scene.key, scene.pixels)
        return self._feeders[kind]

    def _score(self, journal: Journal) -> None:
        waiting = [key for key in self.table.keys if key not in journal.done]
        if journal.done:
            self.progress.note(f"going on where an earlier run stopped: {len(journal.done)} images are counted")
        with self.progress.task("evaluating", len(self.table.keys)) as task:
            task.advance(len(journal.done))
            for tally in score_all(self.evaluator, waiting, self.load, self.workers, task):
                journal.add(tally)
        clock = self.evaluator.clock
        if clock.total:
            self.progress.note(f"{clock.inference / clock.total:.1%} of the threads' time went into the networks")


def _finished(path: Path, facts: dict[str, Any]) -> Matrices | None:
    """The counts of an earlier run, where they answer the same request."""
    if not is_reusable(facts) or not path.is_file():
        return None
    try:
        found = load_matrices(path)
    except CalibError:
        return None
    return found if found.request == facts else None
