"""Collect: activations of every chosen image to the statistics of every tensor, in one pass over the data."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Literal

import numpy as np

from calib.core.graph import Network
from calib.core.histogram import TensorAccumulator, merge
from calib.errors import StatisticsError
from calib.stages.batches import rows_of
from calib.stages.derive import ObservationPlan, derive_all
from calib.types.progress import Progress, Task
from calib.types.runner import Feeds, Runner, to_host
from calib.types.statistics import TensorStatistics

NonFinite = Literal["stop", "skip"]
CHECKPOINT_INTERVAL_S = 20.0


@dataclass(frozen=True)
class Collected:
    """Statistics of a set of images.

    Attributes:
        images: keys of the images that were counted.
        statistics: by tensor name, in network order.
    """

    images: frozenset[str] = frozenset()
    statistics: Mapping[str, TensorStatistics] = field(default_factory=dict)

    def joined(self, other: Collected) -> Collected:
        """Add the statistics of other images."""
        if not self.images or not other.images:
            return other if other.images else self
        merged = {name: merge(item, other.statistics[name]) for name, item in self.statistics.items()}
        return Collected(self.images | other.images, merged)


def _stacked(feeds: Sequence[Feeds], images: Sequence[str]) -> Feeds:
    """Join along the batch axis."""
    del images
    if len(feeds) == 1:
        return feeds[0]
    return {name: np.concatenate([feed[name] for feed in feeds]) for name in feeds[0]}


class Collector:
    """Runs images through a network and counts every activation.

    Images run side by side in threads, one a run; the accumulators are shared, each behind a lock of its own, so memory
    grows neither with the images nor with the threads.

    Args:
        network: the analysed network.
        plan: what to observe.
        runner: returns every observed tensor that is not a network input.
        load: key of an image to its network inputs with batch axis; called in the worker threads.
        join: joins the inputs of several images, whose keys it gets too, along the batch axis.
        rows: batch length.
        fill: whether the network demands exactly ``rows``; the last batch is then filled up with a repeat that is
            not counted.
        non_finite: ``stop`` at NaN and infinity, or ``skip`` such values and count them.
    """

    def __init__(
        self,
        network: Network,
        plan: ObservationPlan,
        runner: Runner,
        load: Callable[[str], Feeds],
        *,
        join: Callable[[Sequence[Feeds], Sequence[str]], Feeds] = _stacked,
        rows: int = 1,
        fill: bool = False,
        non_finite: NonFinite = "stop",
    ) -> None:
        self._network = network
        self._plan = plan
        self._runner = runner
        self._load = load
        self._join = join
        self._rows = rows
        self._fill = fill
        self._non_finite = non_finite
        self._accumulators: dict[str, TensorAccumulator] = {}
        self._locks = {name: Lock() for name in plan.observed}
        self._reset()

    def collect(
        self,
        images: Sequence[str],
        *,
        workers: int,
        progress: Progress,
        done: Collected | None = None,
        checkpoint: Callable[[Collected], None] | None = None,
    ) -> Collected:
        """Count images.

        Args:
            images: keys; the order does not matter to the result.
            workers: images in flight.
            progress: shows one task.
            done: an earlier run's checkpoint; its images are not run again.
            checkpoint: called about every 20 s with all that is counted so far.

        Raises:
            StatisticsError: a non-finite value under ``stop``; the place names tensor and image.
        """
        total = done or Collected()
        todo = [image for image in images if image not in total.images]
        with progress.task("collect", len(images)) as task, ThreadPoolExecutor(workers) as pool:
            task.advance(len(images) - len(todo))
            for part in self._parts(pool, _chunks(todo, self._rows), workers, task):
                total = total.joined(part)
                if checkpoint is not None:
                    checkpoint(total)
        return total

    def _parts(
        self, pool: ThreadPoolExecutor, batches: Iterable[Sequence[str]], workers: int, task: Task
    ) -> Iterator[Collected]:
        """Run batches and yield their statistics whenever a checkpoint is due, and at the end."""
        pending: deque[Future[Sequence[str]]] = deque()
        finished: list[str] = []
        since = time.monotonic()
        for batch in batches:
            pending.append(pool.submit(self._run_batch, batch))
            if len(pending) > workers:
                finished += _finish(pending.popleft(), pending, task)
            if time.monotonic() - since > CHECKPOINT_INTERVAL_S:
                while pending:
                    finished += _finish(pending.popleft(), pending, task)
                yield self._take(finished)
                finished, since = [], time.monotonic()
        while pending:
            finished += _finish(pending.popleft(), pending, task)
        if finished:
            yield self._take(finished)

    def _take(self, images: Iterable[str]) -> Collected:
        """What was counted since the last time."""
        statistics = derive_all(self._plan, self._network, self._accumulators)
        self._reset()
        return Collected(frozenset(images), statistics)

    def _reset(self) -> None:
        self._accumulators = {name: item.accumulator() for name, item in self._plan.observed.items()}

    def _run_batch(self, images: Sequence[str]) -> Sequence[str]:
        """Run and count one batch; images of unlike shapes run one by one."""
        feeds = [self._load(image) for image in images]
        if self._fill:
            repeats = self._rows - len(images)
            feeds += [feeds[-1]] * repeats
            self._count(images, self._join(feeds, [*images, *[images[-1]] * repeats]), self._rows)
        elif len({tuple((name, array.shape) for name, array in feed.items()) for feed in feeds}) == 1:
            self._count(images, self._join(feeds, images), len(images))
        else:
            for image, feed in zip(images, feeds, strict=True):
                self._count([image], self._join([feed], [image]), 1)
        return images

    def _count(self, images: Sequence[str], feeds: Feeds, rows: int) -> None:
        outputs = {**feeds, **self._runner.run(feeds)}
        problems = []
        for name in self._plan.observed:
            array = rows_of(
                to_host(outputs[name]), len(images), rows, self._plan.observed[name].activation.channel_axis
            )
            with self._locks[name]:
                accumulator = self._accumulators[name]
                before = accumulator.nonfinite
                accumulator.update(array)
                if accumulator.nonfinite != before:
                    problems.append((name, accumulator.nonfinite - before, array.size))
        if problems and self._non_finite == "stop":
            raise _non_finite_error(images, problems)


def _finish(future: Future[Sequence[str]], pending: Iterable[Future[Sequence[str]]], task: Task) -> Sequence[str]:
    try:
        images = future.result()
    except BaseException:
        for other in pending:
            other.cancel()
        raise
    task.advance(len(images))
    return images


def _chunks(images: Sequence[str], rows: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(images), rows):
        yield images[start : start + rows]


def _non_finite_error(images: Sequence[str], problems: Sequence[tuple[str, int, int]]) -> StatisticsError:
    name, count, size = problems[0]
    more = f"; {len(problems) - 1} tensors behind it too" if len(problems) > 1 else ""
    return StatisticsError(
        f"tensor {name!r}, image {', '.join(images)}",
        expected="finite activations",
        got=f"{count} NaN or infinite of {size} values{more}",
        remedy="check the preprocessing and the weights, or count and skip them with --non-finite skip",
    )
