"""How fast values are counted and thresholds found, as ratios against plain numpy in the same run.

    python tests/bench/tensor_statistics.py [--values N] [--repeat N]

Figures are the thread's own processor time, the least of several runs: other work on the machine disturbs
them less than elapsed time.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from calib.core.histogram import TensorAccumulator, collect_statistics
from calib.core.search import entropy_bin
from calibrators import CALIBRATORS
from tests.calibrators import reference

Floats = NDArray[np.float32]


def least(work: Callable[[], Any], repeat: int) -> float:
    """Least processor seconds of several runs, the first not counted."""
    work()
    times = []
    for _ in range(repeat):
        begin = time.thread_time()
        work()
        times.append(time.thread_time() - begin)
    return min(times)


def show(line: str) -> None:
    """Print a line."""
    sys.stdout.write(line + "\n")


def activations(values: int) -> Iterator[tuple[str, Floats, float | None]]:
    """Kinds of activations ``[1, 64, H, W]``, and a bound to keep apart."""
    shape = (1, 64, 88, max(values // (64 * 88), 1))
    normal = np.random.default_rng(0).standard_normal(shape, dtype=np.float32)
    yield "normal", normal, None
    yield "normal, a Clip at 1 behind", normal, 1.0
    yield "after Relu", np.maximum(normal, 0), None
    yield "after Relu6", np.clip(4 * normal, 0, 6), None
    yield "constant", np.full(shape, 0.7, np.float32), None


def by_numpy(array: Floats) -> None:
    """What the statistics hold, but for channel extrema and bins that others can be merged with."""
    low, high = array.min(), array.max()
    np.histogram(array, 2048, (low, high if high > low else low + 1))


def counting(values: int, repeat: int) -> None:
    """Print the cost of counting one tensor with channel extrema."""
    show(f"{'counting':28}{'ns/value':>10}{'x max()':>10}{'x numpy':>10}")
    for name, array, bound in activations(values):
        accumulator = TensorAccumulator("x", 1, None, bound)
        ours = least(lambda array=array, accumulator=accumulator: accumulator.update(array), repeat)
        read = least(lambda array=array: array.max(), repeat)
        plain = least(lambda array=array: by_numpy(array), max(repeat // 3, 1))
        show(f"{name:28}{ours / array.size * 1e9:10.2f}{ours / read:10.1f}{ours / plain:10.3f}")


def searching(repeat: int) -> None:
    """Print the cost of the thresholds of one tensor."""
    values = reference.samples("laplace", 500_000, 0)
    counts, _ = reference.histogram(values)
    textbook = least(lambda: reference.best_by_entropy(counts), 1)
    ours = least(lambda: entropy_bin(counts), repeat)
    show(f"\nentropy search, 2048 bins: {ours * 1e3:.2f} ms, 1/{textbook / ours:.0f} of the textbook loop")
    statistics = collect_statistics("x", [values.reshape(50, -1)], 0)
    for name, calibrator in CALIBRATORS.items():
        taken = least(lambda calibrator=calibrator: calibrator(statistics), repeat)
        show(f"{name:12}{taken * 1e3:8.2f} ms a tensor")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values", type=int, default=2_700_000, help="values a tensor")
    parser.add_argument("--repeat", type=int, default=9, help="runs of which the quickest counts")
    options = parser.parse_args()
    counting(options.values, options.repeat)
    searching(options.repeat)


if __name__ == "__main__":
    main()
