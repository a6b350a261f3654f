"""Observed values beyond float16."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import FLOAT16, issue
from calib.core.lint.subject import Subject

LARGEST = 65504.0


def check(subject: Subject) -> Iterator[Sighting]:
    """List each activation that was observed beyond float16's largest value."""
    for item in subject.network.activations:
        amax = subject.ranges.get(item.name, 0.0)
        if amax > LARGEST:
            yield on(item.name, f"reaches {amax:.5g}")


RULE = Rule(
    id="fp16-range",
    title="Tensor with values beyond float16",
    why="float16 ends at 65504: beyond it a value becomes infinite, and what follows becomes infinite or NaN.",
    remedy="keep the nodes that make and read the tensor in float32, or scale the network's input or this layer down",
    sources=(FLOAT16, issue("NVIDIA/TensorRT", 1122)),
    levels=levels(trt="warning"),
    check=check,
)
