"""Residual additions whose shortcut is not quantized."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED, issue
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List additions that would fuse with an INT8 layer but whose sides are both float."""
    if not subject.int8:
        return
    for addition in subject.roles.additions.values():
        node = subject.original(addition.node)
        layer = None if addition.layer is None else subject.original(addition.layer)
        if node is None or layer is None or not subject.is_int8(layer):
            continue
        if not any(subject.from_dequantize(name) for name in node.inputs):
            yield at(node, f"shortcut {node.inputs[addition.shortcut]!r} of {layer.label}")


RULE = Rule(
    id="qdq-residual",
    title="Residual addition whose shortcut has no Q/DQ",
    why=(
        "TensorRT fuses the addition into the INT8 convolution before it only if the other side is INT8 too. Without "
        "a pair there the convolution writes float, the addition runs by itself, and the block loses its speed."
    ),
    remedy="put a pair on the shortcut side, with the scale that the block's first convolution reads it by",
    sources=(TRT_QUANTIZED, issue("NVIDIA/TensorRT", 1992), issue("NVIDIA/TensorRT", 3205)),
    levels=levels(trt="warning"),
    check=check,
)
