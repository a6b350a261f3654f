"""Softmax below opset 13."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject, number


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Softmax, LogSoftmax and Hardmax that normalises over more than its axis."""
    if subject.network.opset >= 13:
        return
    for node in subject.nodes("Softmax", "LogSoftmax", "Hardmax"):
        shape = subject.network.shapes.get(node.input(0))
        if shape is None:
            continue
        axis = int(number(node, "axis", 1)) % max(len(shape), 1)
        if any(length != 1 for length in shape[axis + 1 :]):
            dims = "x".join("?" if length is None else str(length) for length in shape)
            yield at(node, f"axis {axis} of {dims}: normalises over axes {axis} to {len(shape) - 1} together")


RULE = Rule(
    id="softmax-flatten",
    title="Softmax below opset 13 normalises over all axes from its axis on",
    why=(
        "Until opset 12 the specification flattens the input at the axis: over a map of class scores, classes and "
        "pixels share one sum. From 13 the axis alone counts. Runtimes that apply the newer rule to the older opset "
        "are wrong by the specification, and raising the opset by editing its number changes what is computed."
    ),
    remedy=(
        "if one axis was meant, export at opset 13 or higher; raise the opset only with a converter that rewrites the "
        "node (as `calib build` does)"
    ),
    sources=(operator("Softmax"), issue("apache/tvm", 19420), issue("microsoft/onnxruntime", 25402)),
    levels=everywhere("warning"),
    check=check,
)
