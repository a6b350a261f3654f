"""BatchNormalization in its training form."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.norms import batchnorms
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_BATCH_NORM, TRT_OPERATORS, issue, operator
from calib.core.lint.subject import Subject, number
from calib.core.normfold import trains


def check(subject: Subject) -> Iterator[Sighting]:
    """List each BatchNormalization that normalises by the statistics of the batch at hand."""
    for node in batchnorms(subject):
        if trains(node):
            outputs = sum(bool(name) for name in node.outputs)
            yield at(node, f"training_mode {number(node, 'training_mode', 0):g}, {outputs} outputs")


RULE = Rule(
    id="batchnorm-training",
    title="BatchNormalization in training form: it normalises by the batch at hand",
    why=(
        "With training_mode=1, or with outputs for running statistics, the node computes mean and variance of its "
        "input: an image's result depends on the others in the batch, and calibration sees other values than "
        "inference. TensorRT's parser refuses it; ONNX Runtime does what the specification says, on the batch at "
        "hand."
    ),
    remedy=(
        "call model.eval() before the export and export with training=TrainingMode.EVAL; a layer with "
        "track_running_stats=False has no statistics to use: train it with them, or replace it by GroupNorm"
    ),
    sources=(operator("BatchNormalization"), TORCH_BATCH_NORM, TRT_OPERATORS, issue("pytorch/pytorch", 75252)),
    levels=everywhere("error"),
    check=check,
)
