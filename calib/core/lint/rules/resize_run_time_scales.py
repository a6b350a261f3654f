"""Resize whose scales are computed as the network runs."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import read_resizes
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject

DEEP = 32


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize whose scales come from a division of sizes at run time."""
    for resize in read_resizes(subject):
        node = resize.node
        slot = 1 if node.op_type == "Upsample" or subject.network.opset < 11 else 2
        if resize.by == "run-time scales" and _divides(node.input(slot), subject):
            yield at(node, f"scales {node.input(slot)!r} are a quotient of sizes")


def _divides(name: str, subject: Subject) -> bool:
    pending, seen = [name], 0
    while pending and seen < DEEP:
        node = subject.network.producer(pending.pop())
        seen += 1
        if node is not None:
            if node.op_type == "Div":
                return True
            pending.extend(filter(None, node.inputs))
    return False


RULE = Rule(
    id="resize-run-time-scales",
    title="Resize gets its scales from a floating-point division of sizes",
    why=(
        "The exporter rebuilt the scale from two sizes; the output length is floor(input * scale), and where the "
        "quotient is rounded down it is one less than the size it came from. Sampling positions shift with it."
    ),
    remedy="export again with a newer exporter or opset 11 and higher, which hand sizes to the node",
    sources=(operator("Resize"), issue("pytorch/pytorch", 27176)),
    levels=levels(trt="warning", ort="warning"),
    check=check,
)
