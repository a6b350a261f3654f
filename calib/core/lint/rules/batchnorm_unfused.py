"""BatchNormalization left behind a convolution."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.norms import batchnorms, folded_after
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_EXPORT, TRT_QUANTIZED, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each BatchNormalization that could be folded into the layer before it but cannot or was not."""
    if subject.int8:
        return
    for node in batchnorms(subject):
        layer = subject.network.producer(node.input(0))
        if layer is not None and layer.op_type in {"Conv", "ConvTranspose"}:
            if folded_after(layer, subject) is not None:
                yield at(node, f"behind {layer.label}")
            else:
                yield at(node, f"behind {layer.label}, whose output is read elsewhere too", everywhere("warning"))


RULE = Rule(
    id="batchnorm-unfused",
    title="BatchNormalization stands behind a convolution",
    why=(
        "The runtimes fold it when they build; until then the convolution's output has another range than after the "
        "folding, and a calibration cache names a tensor that the engine no longer has. Where another node reads the "
        "convolution's output it cannot be folded."
    ),
    remedy=(
        "export in evaluation mode with constant folding, which folds it; Q/DQ pairs are then placed on folded weights"
    ),
    sources=(operator("BatchNormalization"), TORCH_EXPORT, TRT_QUANTIZED),
    levels=everywhere("note"),
    check=check,
)
