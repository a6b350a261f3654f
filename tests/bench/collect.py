"""Collecting and calibrating against the bare forward passes of the float network, in one run.

    python tests/bench/collect.py MODEL.onnx --data MANIFEST --split S [--images N] [--workers N]

Prints milliseconds an image and their ratio to the bare forward: the runtime's own default (all threads on one image),
inputs ready in memory, nothing exposed. Collecting reads and preprocesses the images; calibrating asks every built-in
calibrator for every tensor. Forward passes and collecting alternate in rounds, and the smallest of each counts, so that
a neighbour on the machine does not decide. Peak memory is that of the whole process.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

from calib.core.expose import expose
from calib.core.graph import analyse
from calib.core.plugins import parse_spec
from calib.edges.feeds import FeedReader
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.edges.plugins import all_calibrators
from calib.edges.progress import SilentProgress
from calib.edges.runners.ort import OrtRunner
from calib.stages.collect import Collector
from calib.stages.derive import plan_observations
from calib.stages.inputs import bind_inputs
from calib.stages.ranges import bind_calibrators, calibrate

FORWARDS = 10


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("--images", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    arguments = parser.parse_args()

    model = load_model(arguments.model)
    network = analyse(model)
    dataset = load_dataset(arguments.data, arguments.split)
    keys = [record.key for record in dataset.records][: arguments.images]
    reader = FeedReader(dataset, bind_inputs(network, dataset.preprocess, dataset.inputs, arguments.model.name))
    plan = plan_observations(network)
    names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
    collector = Collector(network, plan, OrtRunner(expose(model, names), arguments.model.name), reader.load)

    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(arguments.model), options, providers=["CPUExecutionProvider"])
    feeds = [reader.load(key) for key in keys[:FORWARDS]]

    def forward() -> None:
        for feed in feeds:
            session.run(None, feed)

    def collect() -> None:
        nonlocal statistics
        statistics = collector.collect(keys, workers=arguments.workers, progress=SilentProgress()).statistics

    statistics = collector.collect(keys[:2], workers=arguments.workers, progress=SilentProgress()).statistics
    forward()
    bare, collected = [], []
    for _ in range(arguments.rounds):
        bare.append(timed(forward) / len(feeds))
        collected.append(timed(collect) / len(keys))
    calibrators = bind_calibrators([parse_spec(name) for name in all_calibrators()], all_calibrators())
    calibrate(statistics, calibrators, arguments.workers)
    calibrated = timed(lambda: calibrate(statistics, calibrators, arguments.workers)) / len(keys)
    show("bare forward", min(bare), min(bare))
    show("collect", min(collected), min(bare))
    show(f"calibrate ({len(calibrators)} calibrators, over {len(keys)} images)", calibrated, min(bare))
    show("collect and calibrate", min(collected) + calibrated, min(bare))
    observed, total = len(plan.observed), len(statistics)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    sys.stdout.write(f"{total} tensors, {observed} of them observed; peak memory {peak:.0f} MiB\n")


def timed(work: Callable[[], object]) -> float:
    """Seconds that a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(label: str, seconds: float, bare: float) -> None:
    """Print a line of the table."""
    sys.stdout.write(f"{label:<50} {seconds * 1e3:8.1f} ms an image   {seconds / bare:5.2f} x\n")


if __name__ == "__main__":
    main()
