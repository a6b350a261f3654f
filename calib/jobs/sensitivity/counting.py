"""The race: units on images, in rounds, going on from what an earlier run left."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from calib.core.sensitivity.counts import TOGETHER, ImageRecord
from calib.core.sensitivity.racing import Reason, round_ends, settled
from calib.edges.hardware import read_cpu
from calib.edges.sensitivity import CountsJournal
from calib.jobs.sensitivity.course import Course
from calib.jobs.sensitivity.images import Images
from calib.jobs.sensitivity.request import SensitivityRequest
from calib.stages.sensitivity_table import Evidence, Measure
from calib.types.progress import Progress, Task


@dataclass(frozen=True)
class Raced:
    """The result of a race.

    Attributes:
        images: images seen by each unit; all of them together see those of the first round.
        reasons: why each saw no more.
        ends: images after each round that was run.
        runs: unit runs in all.
        reused: of these, what an earlier run had left.
    """

    images: Mapping[int, int]
    reasons: Mapping[int, Reason]
    ends: tuple[int, ...]
    runs: int
    reused: int


@dataclass
class Race:
    """A race of a network's units over images.

    Attributes:
        request: what was asked for.
        course: the network.
        images: in the order in which they are taken.
        journal: keeps what is counted.
        measure: what units are ranked by.
        progress: shows each round.
    """

    request: SensitivityRequest
    course: Course
    images: Images
    journal: CountsJournal
    measure: Measure
    progress: Progress
    _seen: dict[int, int] = field(default_factory=dict)
    _reasons: dict[int, Reason] = field(default_factory=dict)
    _runs: int = 0
    _reused: int = 0

    def run(self) -> Raced:
        """Run rounds until every unit's place is settled or every image is seen.

        Raises:
            CalibError: an image, a label or the network cannot be used.
            OutputError: the counts cannot be written.
        """
        count = len(self.images.keys)
        racing = self.images.labelled and not self.request.exhaustive
        ends = round_ends(count) if racing else (count,)
        active = list(self.course.relay.reachable)
        start = 0
        run: list[int] = []
        for end in ends:
            self._round(active, start, end, f"round {len(run) + 1}, at most {len(ends)}" if racing else "quantizers")
            run.append(end)
            active = self._left(active, end) if end < count else active
            if not active:
                break
            start = end
        self._reasons.update(dict.fromkeys(active, "all"))
        return Raced(self._seen, self._reasons, tuple(run), self._runs, self._reused)

    def evidence(self, count: int) -> Evidence:
        """What is known of the first images."""
        records = [self.journal.done[key] for key in self.images.keys[:count]]
        return Evidence(records, self.course.classes, self.images.slices, self.images.sampling)

    def _left(self, active: Sequence[int], end: int) -> list[int]:
        """Judge the units after a round; those whose place further images may still change."""
        standings = self.evidence(end).standings(active, end, self.measure, self.request.top)
        judged = {unit: settled(own, self.request.resolution) for unit, own in zip(active, standings, strict=True)}
        self._reasons.update({unit: reason for unit, reason in judged.items() if reason is not None})
        return [unit for unit in active if judged[unit] is None]

    def _round(self, units: Sequence[int], start: int, end: int, label: str) -> None:
        """Run some units on some images side by side, one image a thread."""
        keys = self.images.keys[start:end]
        asked = [*units, *([TOGETHER] if start == 0 else [])]
        wanted = {key: _missing(asked, self.journal.done.get(key)) for key in keys}
        total, left = len(units) * len(keys), sum(number >= 0 for missing in wanted.values() for number in missing)
        self._runs += total
        self._reused += total - left
        self._seen.update(dict.fromkeys(units, end))
        with self.progress.task(f"{label}: {len(units)} quantizers x {len(keys)} images", total) as task:
            task.advance(total - left)
            self._score({key: missing for key, missing in wanted.items() if missing}, task)

    def _score(self, wanted: Mapping[str, Sequence[int]], task: Task) -> None:
        workers = self.request.workers or read_cpu().usable

        def work(key: str) -> ImageRecord:
            return self.course.scorer.score(self.images.load(key), wanted[key])

        with ThreadPoolExecutor(workers) as pool:
            pending: deque[Future[ImageRecord]] = deque()
            try:
                for key in wanted:
                    pending.append(pool.submit(work, key))
                    if len(pending) > workers:
                        self._finish(pending, task)
                while pending:
                    self._finish(pending, task)
            finally:
                for future in pending:
                    future.cancel()

    def _finish(self, pending: deque[Future[ImageRecord]], task: Task) -> None:
        record = pending.popleft().result()
        self.journal.add(record)
        task.advance(sum(number >= 0 for number in record.networks))


def _missing(units: Sequence[int], record: ImageRecord | None) -> list[int]:
    return [unit for unit in units if record is None or unit not in record.networks]
