"""Collecting and calibrating against the bare forward passes of the float network, in one run.

    python tests/bench/collect.py MODEL.onnx --data MANIFEST --split S [--images N] [--workers N] [--rounds N]

Prints milliseconds an image and their ratio to the bare forward passes: inputs ready in memory, nothing exposed. These
are run twice: as the runtime does by default, all threads on one image, and with one thread an image, as many images
side by side as there are workers, which is what collecting does. Collecting is `calib build`'s own, with all that it
reads and preprocesses; calibrating asks every built-in calibrator for every tensor. They take turns in rounds, and the
median of the rounds' ratios counts, so that all meet the same load of the machine. Processor time is that of all
threads. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from calib.core.graph import analyse
from calib.core.plugins import parse_spec
from calib.edges.feeds import FeedReader
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.edges.plugins import all_calibrators
from calib.edges.progress import SilentProgress
from calib.jobs.build.collecting import make_collector
from calib.jobs.build.sources import Source
from calib.stages.derive import plan_observations
from calib.stages.inputs import bind_inputs
from calib.stages.ranges import bind_calibrators, calibrate


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()

    model = load_model(arguments.model)
    network = analyse(model)
    dataset = load_dataset(arguments.data, arguments.split)
    keys = [record.key for record in dataset.records][: arguments.images]
    bindings = bind_inputs(network, dataset.preprocess, dataset.inputs, arguments.model.name)
    source = Source("", model, network, ())
    collector = make_collector(source, dataset, bindings, place=arguments.model.name)
    feeds = [FeedReader(dataset, bindings).load(key) for key in keys[:10]]
    every, single = (session(arguments.model, threads) for threads in (0, 1))

    def default() -> None:
        for number in range(len(keys)):
            every.run(None, feeds[number % len(feeds)])

    def side_by_side() -> None:
        with ThreadPoolExecutor(arguments.workers) as pool:
            list(pool.map(lambda number: single.run(None, feeds[number % len(feeds)]), range(len(keys))))

    def collect() -> None:
        nonlocal found
        found = collector.collect(keys, workers=arguments.workers, progress=SilentProgress()).statistics

    def calibrate_all() -> None:
        calibrate(found, calibrators, arguments.workers)

    found = collector.collect(keys[:2], workers=arguments.workers, progress=SilentProgress()).statistics
    calibrators = bind_calibrators([parse_spec(name) for name in all_calibrators()], all_calibrators())
    works = {
        "bare forward, all threads on one image": default,
        "bare forward, one thread an image": side_by_side,
        "collect": collect,
        f"calibrate ({len(calibrators)} calibrators, over {len(keys)} images)": calibrate_all,
    }
    for work in works.values():
        work()
    rounds = [{name: timed(work) for name, work in works.items()} for _ in range(arguments.rounds)]
    show(rounds, list(works), len(keys))
    observed, total = len(plan_observations(network).observed), len(found)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{total} tensors, {observed} of them observed; peak memory {peak:.0f} MiB\n")


def session(model: Path, threads: int) -> Any:
    """The bare network in the runtime; 0 threads are the runtime's own choice."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall time and of processor time that a piece of work takes."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def show(rounds: list[dict[str, tuple[float, float]]], names: list[str], images: int) -> None:
    """Print the table: medians, and medians of each round's ratios to both ways of the bare forward passes."""
    bares = names[:2]
    for name in names:
        cells = []
        for unit, label in ((0, "wall"), (1, "processor")):
            taken = statistics.median(each[name][unit] for each in rounds) / images
            ratios = [statistics.median(each[name][unit] / each[bare][unit] for each in rounds) for bare in bares]
            cells.append(f"{label} {taken * 1e3:7.1f} ms, {ratios[0]:.2f} x, {ratios[1]:.2f} x")
        sys.stdout.write(f"{name:48} {'   '.join(cells)}\n")
    sys.stdout.write("ratios: to all threads on one image, and to one thread an image; medians of the rounds\n")


if __name__ == "__main__":
    main()
