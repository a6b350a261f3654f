"""Scan against a bare loop that reads and decodes the same images and labels on as many threads, in one process.

    python tests/bench/scan.py camvid --root FOLDER --split train

Rounds alternate, so that both sides meet the same load of the machine; the median of the rounds' ratios is printed.
A first scan warms the disk's cache and compiles the kernels. The bare loop decodes colours, as OpenCV does by default.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np

from calib.edges.manifest import load_dataset
from calib.edges.progress import SilentProgress
from calib.jobs.scan import scan
from calib.types.data import Dataset, ImageRecord


def bare_loop(dataset: Dataset, workers: int) -> None:
    """Read and decode every image and label."""

    def decode(record: ImageRecord) -> None:
        for address, flags in ((record.path, cv2.IMREAD_COLOR), (record.label, cv2.IMREAD_UNCHANGED)):
            if address is not None:
                pixels = cv2.imdecode(np.frombuffer(Path(address).read_bytes(), np.uint8), flags)
                if pixels is None:
                    raise SystemExit(f"{address} cannot be decoded")

    with ThreadPoolExecutor(workers) as pool:
        list(pool.map(decode, dataset.records))


def full_scan(dataset: Dataset, workers: int) -> None:
    """Scan into a new index."""
    with tempfile.TemporaryDirectory() as folder:
        scan(dataset, Path(folder) / "index.parquet", progress=SilentProgress(), workers=workers)


def timed(run: Callable[[Dataset, int], None], dataset: Dataset, workers: int) -> tuple[float, float]:
    """Seconds of wall time and of processor time."""
    wall, processor = time.perf_counter(), time.process_time()
    run(dataset, workers)
    return time.perf_counter() - wall, time.process_time() - processor


def main() -> None:
    """Print both speeds and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--split")
    parser.add_argument("--root")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    cv2.setNumThreads(1)
    dataset = load_dataset(options.data, options.split, options.root)
    full_scan(dataset, options.workers)
    rounds = [
        (timed(bare_loop, dataset, options.workers), timed(full_scan, dataset, options.workers))
        for _ in range(options.rounds)
    ]
    images = len(dataset.records)
    for unit, kind in ((0, "wall time"), (1, "processor time")):
        bare, ours = (statistics.median(each[side][unit] for each in rounds) for side in (0, 1))
        ratio = statistics.median(each[0][unit] / each[1][unit] for each in rounds)
        print(
            f"{kind}: bare loop {1000 * bare / images:.2f} ms an image, "
            f"scan {1000 * ours / images:.2f} ms an image, ratio {ratio:.2f}"
        )


if __name__ == "__main__":
    main()
