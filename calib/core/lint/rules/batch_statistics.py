"""Statistics over the batch."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.norms import batchnorms
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_BATCH_NORM, issue, operator
from calib.core.lint.subject import Subject, ints
from calib.core.normfold import trains


def check(subject: Subject) -> Iterator[Sighting]:
    """List each BatchNormalization with run-time statistics, and each mean over images and positions at once."""
    for node in batchnorms(subject):
        computed = [name for name in node.inputs[3:5] if name in subject.activations]
        if computed and not trains(node):
            yield at(node, f"{' and '.join(map(repr, computed))} are computed from its batch")
    for node in subject.nodes("ReduceMean"):
        axes = _axes(node, subject)
        shape = subject.network.shapes.get(node.input(0))
        if shape is not None and len(shape) >= 3 and 0 in axes and len(axes) >= 2 and len(axes) < len(shape):
            yield at(node, f"mean over axes {sorted(axes)}, the batch among them")


def _axes(node: Node, subject: Subject) -> set[int]:
    shape = subject.network.shapes.get(node.input(0)) or ()
    stated = ints(node, "axes") or subject.integers(node.input(1)) or ()
    return {axis % len(shape) for axis in stated if shape and node.input(0) in subject.activations}


RULE = Rule(
    id="batch-statistics",
    title="Statistics are taken over the images of a batch",
    why=(
        "The result of an image then depends on the others it shares a batch with. Exporters write this for BatchNorm "
        "layers without running statistics (track_running_stats=False). Ranges that were calibrated at one batch size "
        "do not hold at another."
    ),
    remedy="train the layer with running statistics, or replace it by GroupNorm or InstanceNorm",
    sources=(operator("BatchNormalization"), TORCH_BATCH_NORM, issue("pytorch/pytorch", 75252)),
    levels=everywhere("warning"),
    check=check,
)
