"""Up the ladder: every image through every rung, outputs compared, labels scored where they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.scoremap import OutputReading, choose_output, planes_of
from calib.core.slices import make_slices
from calib.edges.evaluation.loading import describe_outputs
from calib.edges.evaluation.matrices import gather
from calib.edges.feeds import FeedReader
from calib.edges.hardware import read_cpu
from calib.edges.images import read_picture
from calib.edges.labels import LabelReader
from calib.errors import CalibError
from calib.jobs.diagnose.parts import Part
from calib.jobs.diagnose.request import DiagnoseRequest
from calib.jobs.diagnose.rungs import Contestant, skipped
from calib.jobs.evaluate.run import networks_of
from calib.jobs.scan import scan
from calib.stages.compare import Sampling, compare_networks, image_rows
from calib.stages.diagnose.ladder import LadderMeter, Rung, Standing
from calib.stages.evaluate import Contender, Evaluator, ImageTally, Scene
from calib.types.data import Dataset, ImageRecord
from calib.types.progress import Progress
from calib.types.runner import Array, Feeds

RESAMPLES = 500


@dataclass(frozen=True)
class Climb:
    """The ladder, climbed.

    Attributes:
        standings: every rung.
        images: entry an image with its mIoU under every rung; empty without labels.
        worst: key of the image on which the candidate is farthest from the reference.
        readings: which output counts on each rung.
        classes: names of the classes.
    """

    standings: tuple[Standing, ...]
    images: tuple[Mapping[str, Any], ...]
    worst: str
    readings: Mapping[str, OutputReading]
    classes: tuple[str, ...]


class _Replay:
    """Answers what a rung answered already."""

    def __init__(self) -> None:
        self.now: dict[str, NDArray[Any]] = {}

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs."""
        return tuple(self.now)

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Hand the kept outputs out."""
        del feeds
        return self.now


@dataclass
class Climber:
    """Takes images up the ladder.

    Attributes:
        request: what was asked for.
        dataset: the images looked at.
        rungs: every rung.
        contestants: those that run.
        progress: shows how far it is.
    """

    request: DiagnoseRequest
    dataset: Dataset
    rungs: list[Rung]
    contestants: dict[str, Contestant]
    progress: Progress
    failed: dict[str, str] = field(default_factory=dict)
    _readers: dict[str, FeedReader] = field(default_factory=dict)

    @property
    def labelled(self) -> bool:
        """Whether accuracy can be measured."""
        named = self.dataset.classes is not None and bool(self.dataset.classes.names)
        return named and all(record.label is not None for record in self.dataset.records)

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes."""
        return self.dataset.classes.names if self.dataset.classes else ()

    def feeds(self, part: Part, key: str, pixels: NDArray[np.uint8] | None = None) -> Feeds:
        """What a network is fed of an image."""
        if part.role not in self._readers:
            self._readers[part.role] = FeedReader(part.dataset(self.dataset), part.bindings)
        return self._readers[part.role].feeds(key, pixels)

    def climb(self) -> Climb:
        """Run everything.

        Raises:
            CalibError: the reference, an image or a label cannot be used.
        """
        readings = self._readings()
        meter = LadderMeter([rung for rung in self.rungs if rung.name in self.contestants])
        replays = {name: _Replay() for name in self.contestants}
        evaluator = self._evaluator(replays, readings) if self.labelled else None
        tallies: list[ImageTally] = []
        workers = self.request.workers or read_cpu().usable
        with (
            self.progress.task("climbing the ladder", len(self.dataset.records)) as task,
            ThreadPoolExecutor(workers) as pool,
        ):
            for record in self.dataset.records:
                scene = self._scene(record)
                outputs = self._outputs(scene, readings, pool)
                if self.failed and evaluator is not None:
                    evaluator = self._evaluator(replays, readings)
                maps = {name: self._class_map(name, output, readings[name]) for name, output in outputs.items()}
                meter.add(record.key, outputs, {name: found for name, found in maps.items() if found is not None})
                if evaluator is not None:
                    for name, output in outputs.items():
                        replays[name].now = {readings[name].name: output}
                    tallies.append(evaluator.score(scene))
                task.advance()
        accuracy, rows = self._accuracy(tallies) if tallies else ({}, ())
        self.rungs = skipped(self.rungs, self.failed)
        found = {standing.rung.name: standing for standing in meter.standings(accuracy)}
        standings = tuple(found.get(rung.name, Standing(rung)) for rung in self.rungs)
        return Climb(standings, rows, self._worst(standings), readings, self.classes)

    def _scene(self, record: ImageRecord) -> Scene:
        if not self.labelled:
            pixels = read_picture(record.path).pixels
            return Scene(record.key, pixels, np.zeros(pixels.shape[:2], np.uint8))
        label = LabelReader(self.dataset).read(record).ids
        return Scene(record.key, read_picture(record.path, expected_size=label.shape).pixels, label)

    def _outputs(
        self, scene: Scene, readings: Mapping[str, OutputReading], pool: ThreadPoolExecutor
    ) -> dict[str, NDArray[Any]]:
        feeds = {part.role: self.feeds(part, scene.key, scene.pixels) for part in self._parts()}

        def run(name: str) -> NDArray[Any] | CalibError:
            contestant = self.contestants[name]
            try:
                return contestant.output(feeds[contestant.part.role], readings[name].name)
            except CalibError as error:
                return error

        found: dict[str, NDArray[Any]] = {}
        for name, answer in zip(list(self.contestants), pool.map(run, list(self.contestants)), strict=True):
            if isinstance(answer, CalibError):
                self._drop(name, answer)
            else:
                found[name] = answer
        return found

    def _drop(self, name: str, error: CalibError) -> None:
        if name == "reference":
            raise error
        self.failed[name] = f"{error.place}: {error.got}"
        del self.contestants[name]

    def _parts(self) -> list[Part]:
        found = {contestant.part.role: contestant.part for contestant in self.contestants.values()}
        return list(found.values())

    def _readings(self) -> dict[str, OutputReading]:
        found: dict[str, OutputReading] = {}
        for name, contestant in self.contestants.items():
            outputs, makers = contestant.part.outputs, contestant.part.makers
            if not outputs:
                key = self.dataset.records[0].key
                outputs = describe_outputs(contestant.runner, self.feeds(contestant.part, key))
            count = len(self.classes) or _channels(outputs)
            wanted = self.request.output_name
            if wanted is not None and wanted not in {item.name for item in outputs}:
                wanted = None
            if not self.classes and wanted is None:
                outputs = outputs[:1]
            found[name] = choose_output(outputs, makers, count, wanted, contestant.part.address)
        return found

    def _class_map(self, name: str, output: NDArray[Any], reading: OutputReading) -> NDArray[Any] | None:
        part = self.contestants[name].part
        size = part.preprocess.size or (output.shape[-2], output.shape[-1])
        count = len(self.classes) or _channels_of(output)
        try:
            planes = planes_of(output, reading, count, size, name)[0]
        except CalibError:
            return None
        if reading.kind == "scores":
            return np.asarray(np.argmax(planes[:count], axis=0))
        return np.asarray(planes > reading.threshold) if reading.kind == "binary" else np.asarray(planes)

    def _evaluator(self, replays: Mapping[str, _Replay], readings: Mapping[str, OutputReading]) -> Evaluator:
        nothing: Feeds = {}
        contenders = [Contender(name, replays[name], lambda _: nothing, readings[name]) for name in self.contestants]
        if self.dataset.preprocess is None:
            raise AssertionError(self.dataset.name)
        return Evaluator(contenders, len(self.classes), self.dataset.preprocess, 50, has_reference=True)

    def _accuracy(
        self, tallies: Sequence[ImageTally]
    ) -> tuple[dict[str, Mapping[str, Any]], tuple[Mapping[str, Any], ...]]:
        names = list(self.contestants)
        kept = [tally for tally in tallies if len(tally.networks) == len(names)]
        if not kept:
            return {}, ()
        networks = networks_of(gather({}, names, self.classes, kept))
        keys = {tally.key for tally in kept}
        part = replace(self.dataset, records=tuple(record for record in self.dataset.records if record.key in keys))
        table = scan(part, self.request.output / ".diagnosis" / "index.parquet", progress=self.progress).table
        slices, _ = make_slices(table, [record.group for record in part.records], {})
        documents = compare_networks(networks, slices, Sampling(RESAMPLES, self.request.seed), 0, self.progress)
        return dict(zip(names, documents, strict=True)), tuple(image_rows(networks, slices, 0))

    def _worst(self, standings: Sequence[Standing]) -> str:
        """The image farthest from the reference on the highest rung that shows a difference at all."""
        first = self.dataset.records[0].key
        for name in ("float", "candidate", "tensorrt", "fake-quant"):
            found = next((item for item in standings if item.rung.name == name), None)
            if found is not None and found.images and max(found.images.values()) > 1e-5:
                return max(sorted(found.images), key=lambda key: found.images[key])
        return first


def _channels(outputs: Sequence[Any]) -> int:
    shape = outputs[0].shape if outputs else None
    if shape is None or len(shape) != 4:
        return 1
    known = [length for length in (shape[1], shape[3]) if length]
    return int(min(known)) if known else 1


def _channels_of(output: NDArray[Any]) -> int:
    return min(output.shape[1], output.shape[3]) if output.ndim == 4 else 1


def chosen_records(dataset: Dataset, count: int) -> Dataset:
    """Images spread evenly over a split, at most ``count``."""
    records = dataset.records
    if count >= len(records):
        return dataset
    places = [int(place * len(records) / count) for place in range(count)]
    return replace(dataset, records=tuple(records[place] for place in places))
