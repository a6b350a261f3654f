"""Networks that share memory need no more than the largest, and give it back when asked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.edges.runners.ort import OrtRunner, shared_memory_released
from tests.builds import parsed

STATM = Path("/proc/self/statm")
MIB = 1 << 20
LARGE = 64 * MIB
"""Bytes of the inner tensors of one run."""

pytestmark = pytest.mark.skipif(not STATM.exists(), reason="the system does not show a process's memory")


def resident() -> int:
    """Bytes of this process that are in memory."""
    return int(STATM.read_text().split()[1]) * 4096


def network(shift: float) -> onnx.ModelProto:
    """Adds twice; what is between takes ``LARGE`` bytes."""
    body = """
        long = Expand (x, size)
        moved = Add (long, shift)
        logits = ReduceMax <keepdims = 1> (moved)
    """
    weights = {"shift": np.float32(shift), "size": np.array([LARGE // 8], np.int64)}
    return parsed(body, weights, inputs="float[1] x", outputs="float[1] logits")


def answer(runner: OrtRunner) -> float:
    return float(np.asarray(runner.run({"x": np.ones(1, np.float32)})["logits"])[0])


def test_memory_is_shared_and_goes_back() -> None:
    first, second = (OrtRunner(network(shift), "net", share_memory=True) for shift in (1, 2))
    with shared_memory_released():
        before = resident()
        assert answer(first) == 2
        one = resident()
        assert answer(second) == 3
        two = resident()
    after = resident()
    assert one - before > LARGE // 2
    assert two - one < LARGE // 4
    assert two - after > LARGE // 2
    assert answer(first) == 2, "a session goes on after its memory was given back"


def test_results_outlive_the_memory_that_is_given_back() -> None:
    runner = OrtRunner(network(4), "net", share_memory=True)
    with shared_memory_released():
        kept = runner.run({"x": np.ones(1, np.float32)})["logits"]
    answer(runner)
    assert float(np.asarray(kept)[0]) == 5


def test_memory_goes_back_when_work_fails() -> None:
    runner = OrtRunner(network(1), "net", share_memory=True)

    @shared_memory_released()
    def work() -> None:
        answer(runner)
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        work()
    before = resident()
    answer(runner)
    assert resident() - before > LARGE // 2
