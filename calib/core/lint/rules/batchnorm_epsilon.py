"""BatchNormalization with an epsilon of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from calib.core.lint.norms import batchnorms, epsilon
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_BATCH_NORM, operator
from calib.core.lint.subject import Subject

USUAL = (1e-8, 1.01e-2)
FEW = 0.1
"""An epsilon that at most this share of the nodes has is looked at."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes whose epsilon is outside of what frameworks use, or differs from nearly all others'."""
    found = [(node, float(f"{epsilon(node):.6g}")) for node in batchnorms(subject)]
    counts = Counter(value for _, value in found)
    for node, value in found:
        if not USUAL[0] <= value <= USUAL[1]:
            yield at(node, f"epsilon {value:g}")
        elif counts[value] <= FEW * len(found):
            common = counts.most_common(1)[0]
            yield at(node, f"epsilon {value:g}, where {common[1]} others have {common[0]:g}", everywhere("note"))


RULE = Rule(
    id="batchnorm-epsilon",
    title="BatchNormalization with an unusual epsilon",
    why=(
        "PyTorch uses 1e-5, Keras and some backbones 1e-3. Converters that drop the value fall back to 1e-5; channels "
        "of small variance then change their gain, at every node a little."
    ),
    remedy="compare with the eps of the layers the network was trained with",
    sources=(operator("BatchNormalization"), TORCH_BATCH_NORM),
    levels=everywhere("warning"),
    check=check,
)
