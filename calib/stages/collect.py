"""Collect: activations of every chosen image to the statistics of every tensor, in one pass over the data."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from threading import Lock
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import Network
from calib.core.histogram import TensorAccumulator, merge
from calib.errors import StatisticsError
from calib.stages.batches import rows_of
from calib.stages.derive import ObservationPlan, derive_all
from calib.types.progress import Progress, Task
from calib.types.runner import Array, Blocks, Feeds, StreamRunner, to_host
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
        runner: StreamRunner,
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
        self._locks = {name: Lock() for name in plan.observed}
        self._tally = _Tally.of(plan)

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
            checkpoint: called about every 20 s, and when interrupted, with all that is counted so far.

        Raises:
            StatisticsError: a non-finite value under ``stop``; the place names tensor and image.
        """
        total = done or Collected()
        todo = [image for image in images if image not in total.images]
        save = checkpoint or _forget
        with progress.task("collect", len(images)) as task, ThreadPoolExecutor(workers) as pool:
            task.advance(len(images) - len(todo))
            try:
                for part in self._parts(pool, _chunks(todo, self._rows), workers, task):
                    total = total.joined(part)
                    save(total)
            except KeyboardInterrupt:
                pool.shutdown(cancel_futures=True)  # images in flight are counted to their end
                if self._tally.images and self._tally.whole:
                    save(total.joined(self._take()))
                raise
        return total

    def _parts(
        self, pool: ThreadPoolExecutor, batches: Iterable[Sequence[str]], workers: int, task: Task
    ) -> Iterator[Collected]:
        """Run batches and yield their statistics whenever a checkpoint is due, and at the end."""
        pending: deque[Future[int]] = deque()
        since = time.monotonic()
        for batch in batches:
            pending.append(pool.submit(self._run_batch, batch))
            due = time.monotonic() - since > CHECKPOINT_INTERVAL_S
            _finish(pending, 0 if due else workers, task)
            if due:
                yield self._take()
                since = time.monotonic()
        _finish(pending, 0, task)
        if self._tally.images:
            yield self._take()

    def _take(self) -> Collected:
        """What was counted since the last time; nothing may be in flight."""
        tally = self._tally
        statistics = derive_all(self._plan, self._network, tally.accumulators)
        self._tally = _Tally.of(self._plan)
        return Collected(frozenset(tally.images), statistics)

    def _run_batch(self, images: Sequence[str]) -> int:
        """Run and count one batch; images of unlike shapes run one by one."""
        feeds = [self._load(image) for image in images]
        self._tally.under_way()
        if self._fill:
            repeats = self._rows - len(images)
            feeds += [feeds[-1]] * repeats
            self._count(images, self._join(feeds, [*images, *[images[-1]] * repeats]), self._rows)
        elif len({tuple((name, array.shape) for name, array in feed.items()) for feed in feeds}) == 1:
            self._count(images, self._join(feeds, images), len(images))
        else:
            for image, feed in zip(images, feeds, strict=True):
                self._count([image], self._join([feed], [image]), 1)
        self._tally.add(images)
        return len(images)

    def _count(self, images: Sequence[str], feeds: Feeds, rows: int) -> None:
        problems = []
        for name, found in chain(feeds.items(), self._runner.stream(feeds)):
            if name not in self._plan.observed:  # an input of integers
                continue
            channel_axis = self._plan.observed[name].activation.channel_axis
            array = _own_rows(found, len(images), rows, channel_axis)
            with self._locks[name]:
                accumulator = self._tally.accumulators[name]
                before = accumulator.nonfinite
                _add(accumulator, array)
                if accumulator.nonfinite != before:
                    culprits = _culprits(to_host(array), images)
                    problems.append((name, accumulator.nonfinite - before, math.prod(array.shape), culprits))
        if problems and self._non_finite == "stop":
            raise _non_finite_error(problems)


@dataclass
class _Tally:
    """What was counted since the last checkpoint.

    Attributes:
        accumulators: by tensor name.
        images: keys of the images that are counted to their end.
        open: batches begun and not ended; more than none are left only where one failed.
    """

    accumulators: Mapping[str, TensorAccumulator]
    images: list[str] = field(default_factory=list)
    open: int = 0
    lock: Lock = field(default_factory=Lock)

    @classmethod
    def of(cls, plan: ObservationPlan) -> _Tally:
        """An empty one."""
        return cls({name: item.accumulator() for name, item in plan.observed.items()})

    @property
    def whole(self) -> bool:
        """Whether no batch is counted in part."""
        return not self.open

    def under_way(self) -> None:
        """Note that a batch is going to be counted."""
        with self.lock:
            self.open += 1

    def add(self, images: Iterable[str]) -> None:
        """Note that a batch is counted."""
        with self.lock:
            self.open -= 1
            self.images += images


def _forget(part: Collected) -> None:
    """The checkpoint of those who want none."""
    del part


def _finish(pending: deque[Future[int]], left: int, task: Task) -> None:
    """Wait for the oldest batches until so many are left; where one failed, drop those that have not begun."""
    while len(pending) > left:
        try:
            task.advance(pending.popleft().result())
        except BaseException:
            for other in pending:
                other.cancel()
            raise


def _chunks(images: Sequence[str], rows: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(images), rows):
        yield images[start : start + rows]


def _own_rows(found: Array, images: int, rows: int, channel_axis: int | None) -> NDArray[Any] | Blocks:
    """A result in host memory without what belongs to the repeats that filled up a batch."""
    if not isinstance(found, Blocks):
        return rows_of(to_host(found), images, rows, channel_axis)
    return found.first(images) if found.shape[0] == rows else found


def _add(accumulator: TensorAccumulator, array: NDArray[Any] | Blocks) -> None:
    if isinstance(array, Blocks):
        accumulator.update_blocks(array.data, array.channels)
    else:
        accumulator.update(array)


def _culprits(array: NDArray[Any], images: Sequence[str]) -> Sequence[str]:
    """Images of a batch that hold NaN or infinity, where the first axis tells; else all of them."""
    if len(images) == 1 or array.shape[:1] != (len(images),):
        return images
    return [image for image, part in zip(images, array, strict=True) if not np.isfinite(part).all()]


def _non_finite_error(problems: Sequence[tuple[str, int, int, Sequence[str]]]) -> StatisticsError:
    name, count, size, images = problems[0]
    behind = len(problems) - 1
    more = f"; {behind} {'tensors' if behind > 1 else 'tensor'} behind it too" if behind else ""
    return StatisticsError(
        f"tensor {name!r}, image {', '.join(images)}",
        expected="finite activations",
        got=f"{count} NaN or infinite of {size} values{more}",
        remedy="check the preprocessing and the weights, or count and skip them with --non-finite skip",
    )
