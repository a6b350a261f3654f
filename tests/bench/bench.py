"""Benchmarks of the two heavy commands, each against the bare work in the same run.

    make bench BENCH_ARGS="build --model NET.onnx --data MANIFEST.yaml --split train --num-images 100"
    make bench BENCH_ARGS="scan --data MANIFEST.yaml --split train --images FOLDER"

``build``: wall time of ``calib build`` against as many bare forward passes of the float network, and its peak memory.
``scan``: images a second of ``calib scan`` against a bare loop that decodes the same files on as many threads.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

MIB = 1 << 20


def run_calib(arguments: Sequence[str]) -> tuple[float, float]:
    """Run a command of calib; its seconds and its peak memory in MiB.

    The peak is read from the running process where the system shows it. What the system says of a finished one holds
    the peak of the process that started it, too.
    """
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "calib", *arguments], stdout=subprocess.DEVNULL)
    shown = Path(f"/proc/{process.pid}/status")
    peak = 0.0
    while shown.exists() and process.poll() is None:
        peak = max(peak, _peak_of(shown))
        time.sleep(0.02)
    _, status, usage = (0, process.returncode, None) if peak else os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    if status:
        sys.exit(f"calib {' '.join(arguments)} failed")
    if usage is not None:
        peak = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return seconds, peak / MIB


def _peak_of(status: Path) -> float:
    """Bytes a running process had resident at most; 0 where it has ended meanwhile."""
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * int(line.split()[1]) for line in lines if line.startswith("VmHWM")), 0.0)


def bare_forward(model: str, count: int) -> float:
    """Seconds of ``count`` forward passes of the float network, one image each, after one to warm up."""
    import numpy as np
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    feed = {}
    for each in session.get_inputs():
        shape = [size if isinstance(size, int) else 1 for size in each.shape]
        feed[each.name] = rng.standard_normal(shape).astype(np.float32)
    session.run(None, feed)
    started = time.perf_counter()
    for _ in range(count):
        session.run(None, feed)
    return time.perf_counter() - started


def bare_decode(files: Sequence[Path]) -> float:
    """Seconds to read and decode every file on all cores."""
    import cv2
    import numpy as np

    cv2.setNumThreads(1)

    def decode(path: Path) -> int:
        pixels = cv2.imdecode(np.frombuffer(path.read_bytes(), np.uint8), cv2.IMREAD_COLOR)
        return 0 if pixels is None else int(pixels.shape[0])

    started = time.perf_counter()
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        decoded = list(pool.map(decode, files))
    if 0 in decoded:
        sys.exit(f"{files[decoded.index(0)]} cannot be decoded")
    return time.perf_counter() - started


def bench_build(options: argparse.Namespace) -> None:
    """Print build's time, the bare passes' time, their ratio, and the peak memory."""
    common = [options.model, "--data", options.data, "--split", options.split]
    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--num-images", str(options.num_images), "--sampler", options.sampler]
        seconds, peak = run_calib(["build", *common, *sizes, "-q", "-o", folder])
    bare = bare_forward(options.model, options.num_images)
    print(f"calib build, {options.num_images} images: {seconds:.1f} s, peak {peak:.0f} MiB")
    print(f"{options.num_images} bare forward passes: {bare:.1f} s")
    print(f"ratio: {seconds / bare:.2f}")


def bench_scan(options: argparse.Namespace) -> None:
    """Print scan's and the bare loop's images a second, and their ratio; a first loop warms the disk's cache."""
    files = sorted(path for path in Path(options.images).rglob("*") if path.is_file())
    if not files:
        sys.exit(f"no file below {options.images}")
    bare_decode(files)
    bare = bare_decode(files)
    with tempfile.TemporaryDirectory() as folder:
        target = str(Path(folder) / "index.parquet")
        seconds, peak = run_calib(["scan", options.data, "--split", options.split, "-q", "-o", target])
    print(f"calib scan, {len(files)} images: {len(files) / seconds:.1f} images/s, peak {peak:.0f} MiB")
    print(f"bare decode loop: {len(files) / bare:.1f} images/s")
    print(f"ratio: {bare / seconds:.2f}")


def main() -> None:
    """Read the arguments and run one benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    build = verbs.add_parser("build")
    build.add_argument("--model", required=True)
    build.add_argument("--sampler", default="random")
    build.add_argument("--num-images", type=int, default=100)
    build.set_defaults(run=bench_build)
    scan = verbs.add_parser("scan")
    scan.add_argument("--images", required=True, help="the folder that holds the images of the split and nothing else")
    scan.set_defaults(run=bench_scan)
    for each in (build, scan):
        each.add_argument("--data", required=True)
        each.add_argument("--split", default="train")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
