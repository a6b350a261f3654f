"""BatchNormalization channels whose variance is next to nothing."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.norms import batchnorms, epsilon, gain
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_BATCH_NORM, operator
from calib.core.lint.subject import Subject

LARGE_GAIN = 30.0
"""A gain that only epsilon bounds matters from here on; a pruned channel's is close to 0."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes with negative variances, and nodes where epsilon alone sets a large gain."""
    for node in batchnorms(subject):
        variance, factor = subject.value(node.input(4)), gain(node, subject)
        if variance is None or factor is None:
            continue
        spread = variance.astype(np.float64).ravel()
        if (spread + epsilon(node) <= 0).any():
            yield at(node, f"variance down to {spread.min():.3g}: its root is no number", everywhere("error"))
            continue
        bound = (spread < epsilon(node)) & (np.abs(factor) > LARGE_GAIN)
        if bound.any():
            largest = float(np.abs(factor[bound]).max())
            count = f"{int(bound.sum())} of {bound.size} channels have a variance below epsilon"
            yield at(node, f"{count} {epsilon(node):g}; gain up to {largest:.3g}")


RULE = Rule(
    id="batchnorm-variance",
    title="BatchNormalization channels of almost no variance, whose gain epsilon alone sets",
    why=(
        "Where the variance is far below epsilon the gain is scale / sqrt(epsilon), up to 316 for the usual 1e-5: the "
        "channel was constant in training. Rounding, another epsilon, or an input unlike the training's is amplified "
        "by it, and the folded weights stretch the layer's range."
    ),
    remedy="look at what the channel sees; retrain, or prune it by setting its scale to 0",
    sources=(operator("BatchNormalization"), TORCH_BATCH_NORM),
    levels=everywhere("warning"),
    check=check,
)
