"""Networks that share memory need no more than the largest, and give it back when asked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.edges.runners.ort import OrtRunner, shared_memory_released
from tests.builds import parsed

STATM = Path("/proc/self/statm")
LARGE = 64 << 20
"""Bytes of the inner tensors of one run."""

WATCHED = """
from tests.edges.test_runner_memory import answer, network, resident
from calib.edges.runners.ort import OrtRunner, shared_memory_released

first, second = (OrtRunner(network(shift), "net", share_memory=True) for shift in (1, 2))
sizes = [resident()]
try:
    with shared_memory_released():
        for runner in (first, second):
            answer(runner)
            sizes.append(resident())
        raise OSError("disk full")
except OSError:
    sizes.append(resident())
print(*sizes)
"""


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATM.read_text().split()[1]) * 4096


def network(shift: float) -> onnx.ModelProto:
    """Adds a number to many; what is between input and output takes ``LARGE`` bytes."""
    body = """
        long = Expand (x, size)
        moved = Add (long, shift)
        logits = ReduceMax <keepdims = 1> (moved)
    """
    weights = {"shift": np.float32(shift), "size": np.array([LARGE // 8], np.int64)}
    return parsed(body, weights, inputs="float[1] x", outputs="float[1] logits")


def answer(runner: OrtRunner) -> float:
    return float(np.asarray(runner.run({"x": np.ones(1, np.float32)})["logits"])[0])


@pytest.mark.skipif(not STATM.exists(), reason="the system does not show a process's memory")
def test_memory_is_shared_and_goes_back_even_when_work_fails() -> None:
    """In a process of its own: others may have left memory to take."""
    command = [sys.executable, "-c", WATCHED]
    shown = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    before, one, two, after = map(int, shown.stdout.split())
    assert one - before > LARGE // 2
    assert two - one < LARGE // 4
    assert two - after > LARGE // 2


def test_networks_go_on_after_their_memory_was_given_back() -> None:
    first, second = (OrtRunner(network(shift), "net", share_memory=True) for shift in (1, 2))
    with shared_memory_released():
        assert answer(first) == 2
        assert answer(second) == 3
    assert answer(first) == 2
    assert answer(second) == 3


def test_results_outlive_the_memory_that_is_given_back() -> None:
    runner = OrtRunner(network(4), "net", share_memory=True)
    with shared_memory_released():
        kept = runner.run({"x": np.ones(1, np.float32)})["logits"]
    answer(runner)
    assert float(np.asarray(kept)[0]) == 5
