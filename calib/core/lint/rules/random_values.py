"""Random numbers in an inference network."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph.constants import RANDOM
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_OPERATORS, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each node that draws random numbers."""
    for node in subject.nodes(*RANDOM):
        yield at(node, node.op_type)


RULE = Rule(
    id="random-values",
    title="The network draws random numbers",
    why=(
        "Every run gives another result, and TensorRT ignores the seed: runs cannot be compared, and ranges, IoU and "
        "parity are measured on noise."
    ),
    remedy="export in evaluation mode; hand the noise in as an input where the network really needs it",
    sources=(operator("RandomNormalLike"), TRT_OPERATORS),
    levels=everywhere("warning"),
    check=check,
)
