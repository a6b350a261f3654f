"""Scoring many images side by side, in threads, with the results in order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from calib.stages.evaluate import Evaluator, ImageTally, Scene
from calib.types.progress import Task


def score_all(
    evaluator: Evaluator, keys: Sequence[str], load: Callable[[str], Scene], workers: int, task: Task
) -> Iterator[ImageTally]:
    """Score images side by side in threads, one run a thread, and yield them in the order given.

    At most ``workers + 1`` images are in flight, so memory does not grow with their number.

    Args:
        evaluator: scores an image.
        keys: the images.
        load: reads and decodes one; called in the worker threads.
        workers: threads.
        task: advanced by one an image.
    """

    def work(key: str) -> ImageTally:
        return evaluator.score(load(key))

    with ThreadPoolExecutor(workers) as pool:
        pending: deque[Future[ImageTally]] = deque()
        try:
            for key in keys:
                pending.append(pool.submit(work, key))
                if len(pending) > workers:
                    yield _finish(pending, task)
            while pending:
                yield _finish(pending, task)
        finally:
            for future in pending:
                future.cancel()


def _finish(pending: deque[Future[ImageTally]], task: Task) -> ImageTally:
    tally = pending.popleft().result()
    task.advance()
    return tally
