"""The last layers, quantized."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List the layers before the outputs that run in INT8."""
    if subject.int8:
        for index in sorted(subject.roles.logits):
            node = subject.original(index)
            if node is not None and subject.is_int8(node):
                yield at(node, f"{node.op_type} before an output")


RULE = Rule(
    id="qdq-logits",
    title="Last layer before an output runs in INT8",
    why=(
        "Its rounding errors go straight into the class scores, and no later layer averages them out. It is a small "
        "share of the work: one 1x1 convolution of a few classes."
    ),
    remedy="keep the logits layer in float (calib's default)",
    sources=(TRT_QUANTIZED, "https://github.com/ultralytics/ultralytics/pull/26171", issue("NVIDIA/TensorRT", 4616)),
    levels=everywhere("warning"),
    check=check,
)
