"""Evaluation against the bare forward passes of the same networks, in one process, and its memory.

    python -m tests.bench.evaluate NET.onnx BUILD --data MANIFEST --split S [--root R] [--images N] [--pictures P]

The bare loop runs every network once on every image, inputs ready in memory, one thread a run and as many images side
by side as evaluation has: what cannot be saved. Evaluation reads, scores, resizes, counts, compares, draws and writes.
Rounds alternate, and the smallest of each side counts, so that a neighbour on the machine does not decide. A first
evaluation of two images compiles the kernels. ``--peaks 25 100`` prints the peak memory of whole commands on so many
images.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import onnxruntime
import yaml

from calib.core.graph import analyse
from calib.edges.evaluation.sources import find_sources
from calib.edges.feeds import FeedReader
from calib.edges.manifest import load_dataset
from calib.edges.models import load_model
from calib.jobs.evaluate import evaluate
from calib.stages.inputs import bind_inputs
from calib.types.data import Dataset
from tests.bench.bench import run_calib

SPLIT = "bench"


def cut(dataset: Dataset, images: int, folder: Path) -> Path:
    """Write a manifest of the first ``images`` images of a split, repeated where there are fewer."""
    manifest = yaml.safe_load(Path(dataset.manifest_path).read_text(encoding="utf-8"))
    with (folder / f"{images}.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["image", "label"])
        writer.writerows([record.path, record.label] for record in dataset.records[:images])
    manifest["splits"] = {SPLIT: {"list": str(folder / f"{images}.csv")}}
    manifest["root"] = str(Path(dataset.records[0].path).parent)
    target = folder / f"{images}.yaml"
    target.write_text(yaml.safe_dump(manifest), encoding="utf-8")
    return target


def bare_sessions(addresses: list[str], numerics: str) -> list[onnxruntime.InferenceSession]:
    """Sessions as evaluation has them."""
    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = 1
    settings.log_severity_level = 4
    if numerics == "fake-quant":
        settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return [onnxruntime.InferenceSession(each, settings, providers=["CPUExecutionProvider"]) for each in addresses]


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds of wall time and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - processor


def measure(options: argparse.Namespace, folder: Path) -> None:
    """Print the share of everything but inference, in wall time and in processor time."""
    whole = load_dataset(options.data, options.split, options.root)
    manifest = cut(whole, options.images, folder)
    dataset = load_dataset(str(manifest), SPLIT)
    sources = find_sources(options.models, options.reference)
    addresses = [source.address for source in sources]
    model = load_model(addresses[0])
    reader = FeedReader(dataset, bind_inputs(analyse(model), dataset.preprocess, dataset.inputs, addresses[0]))
    feeds = [reader.load(record.key) for record in dataset.records]
    sessions = bare_sessions(addresses, options.numerics)

    def bare() -> None:
        with ThreadPoolExecutor(options.workers) as pool:
            list(pool.map(lambda feed: [len(session.run(None, feed)) for session in sessions], feeds))

    def ours(manifest: Path = manifest) -> None:
        with tempfile.TemporaryDirectory(dir=folder) as output:
            evaluate(
                addresses, manifest, output=output, reference=addresses[0], numerics=options.numerics,
                pictures=options.pictures, workers=options.workers,
            )  # fmt: skip

    ours(cut(whole, 2, folder))
    rounds = [(timed(bare), timed(ours)) for _ in range(options.rounds)]
    print(f"{len(sessions)} networks, {len(feeds)} images, {options.numerics}, {options.workers} workers")
    for unit, kind in ((0, "wall time"), (1, "processor time")):
        inference, total = (min(each[side][unit] for each in rounds) for side in (0, 1))
        rest = 1 - inference / total
        print(f"{kind}: bare passes {inference:.1f} s, evaluation {total:.1f} s; all but inference {rest:.1%}")


def peaks(options: argparse.Namespace, folder: Path) -> None:
    """Print the peak memory of whole commands."""
    whole = load_dataset(options.data, options.split, options.root)
    for images in options.peaks:
        if images > len(whole.records):
            sys.exit(f"split {options.split} has {len(whole.records)} images")
        reference = ["--reference", options.reference] if options.reference else []
        common = ["--data", str(cut(whole, images, folder)), "--numerics", options.numerics, "-q", *reference]
        seconds, peak = run_calib(["evaluate", *options.models, *common, "-o", str(folder / f"out{images}")])
        print(f"{images} images: {seconds:.1f} s, peak {peak:.0f} MiB")


def main() -> None:
    """Read the arguments, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--data", required=True)
    parser.add_argument("--split")
    parser.add_argument("--root")
    parser.add_argument("--reference")
    parser.add_argument("--numerics", choices=("fake-quant", "int8"), default="fake-quant")
    parser.add_argument("--images", type=int, default=50)
    parser.add_argument("--pictures", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--peaks", type=int, nargs="*", default=())
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        measure(options, Path(folder))
        peaks(options, Path(folder))


if __name__ == "__main__":
    main()
