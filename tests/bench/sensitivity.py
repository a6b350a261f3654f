"""Sensitivity against bare forward passes of the float network, in one run.

    python tests/bench/sensitivity.py NETWORK --float MODEL.onnx --data MANIFEST --split S [-n N] [--rounds N]

A bare forward is the runtime's own default: all threads on one image, inputs ready in memory. Every measurement is
whole: scan, sessions, reading images, scoring, intervals, report. The ratio is wall time over (quantizers x images)
bare forwards, for racing and for the exhaustive run. Passes and measurements alternate, and the smallest of each
counts, so that a neighbour on the machine does not decide. At the end the two rankings are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from calib.core.graph import analyse
from calib.edges.feeds import FeedReader
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.edges.progress import SilentProgress
from calib.jobs.sensitivity import SensitivityRequest, measure_sensitivity
from calib.stages.inputs import bind_inputs

FORWARDS = 20


def main() -> None:
    """Run the benchmark and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network")
    parser.add_argument("--float", required=True, type=Path)
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("-n", "--num-images", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--racing-only", action="store_true")
    arguments = parser.parse_args()

    forward = bare_forward(vars(arguments)["float"], arguments)
    forward()
    bare: list[float] = []
    spent: dict[str, list[float]] = {"racing": [], "exhaustive": []}
    documents: dict[str, Any] = {}
    for _ in range(arguments.rounds):
        for kind, times in spent.items():
            if kind == "exhaustive" and arguments.racing_only:
                continue
            bare.append(timed(forward) / FORWARDS)
            with tempfile.TemporaryDirectory() as folder:
                request = SensitivityRequest(
                    arguments.network, arguments.data, Path(folder), split=arguments.split,
                    num_images=arguments.num_images, exhaustive=kind == "exhaustive", top=arguments.top,
                )  # fmt: skip
                start = time.perf_counter()
                documents[kind] = measure_sensitivity(request, SilentProgress()).document
                times.append(time.perf_counter() - start)
            bare.append(timed(forward) / FORWARDS)
    show(documents, spent, min(bare), arguments.top)


def bare_forward(model: Path, arguments: argparse.Namespace) -> Callable[[], None]:
    """Passes of the float network over one image in memory, by the runtime's own defaults."""
    import onnxruntime

    dataset = load_dataset(arguments.data, arguments.split)
    bindings = bind_inputs(analyse(load_model(model)), dataset.preprocess, dataset.inputs, model.name)
    feed = FeedReader(dataset, bindings).load(dataset.records[0].key)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def run() -> None:
        for _ in range(FORWARDS):
            session.run(None, feed)

    return run


def timed(work: Callable[[], None]) -> float:
    """Seconds that a piece of work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def show(documents: dict[str, Any], spent: dict[str, list[float]], bare: float, top: int) -> None:
    """Print the table, and how the two rankings agree."""
    print(f"bare forward: {bare * 1e3:.1f} ms")
    for kind, document in documents.items():
        ranking = document["ranking"]
        work = ranking["runs_of_all"] * bare
        seconds = min(spent[kind])
        print(
            f"{kind}: {seconds:.1f} s, {ranking['runs']} runs of {ranking['runs_of_all']} (images after each round: "
            f"{ranking['rounds']}); ratio to {ranking['runs_of_all']} bare forwards: {seconds / work:.3f}"
        )
    if len(documents) > 1:
        first = [{unit["name"] for unit in document["units"][:top]} for document in documents.values()]
        print(f"first {top} of both rankings: {len(first[0] & first[1])} in common")


if __name__ == "__main__":
    sys.exit(main())
