"""Padding with anything but zeros."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.pads import amounts
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_CHANGELOG, TRT_OPERATORS, issue
from calib.core.lint.subject import Subject, number, text


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Pad of an activation that is not by zeros."""
    for node in subject.nodes("Pad"):
        if node.input(0) not in subject.activations:
            continue
        pads = amounts(node, subject)
        if pads is not None and not any(any(sides) for sides in pads.values()):
            continue
        said = _said(node, subject)
        if said:
            yield at(node, said)


def _said(node: Node, subject: Subject) -> str:
    mode = text(node, "mode", "constant")
    if mode != "constant":
        return f"mode {mode}"
    if subject.network.opset < 11:
        value: float | None = number(node, "value", 0.0)
    else:
        value = subject.constants.scalar(node.input(2)) if node.input(2) else 0.0
    if value is None:
        return "" if subject.is_constant(node.input(2)) else "a value computed as the network runs"
    return f"value {value:g}" if value else ""


RULE = Rule(
    id="pad-mode",
    title="Pad by reflection, edge or a value other than zero",
    why=(
        "TensorRT takes it as a slice beside the convolution (reflect and edge since 8, wrap since 10.0; TensorRT 7 "
        "refuses all of them): it does not fuse into the convolution, and costs a pass over the map."
    ),
    remedy="keep it if accuracy needs it; else pad with zeros, in the convolution's own pads",
    sources=(
        TRT_OPERATORS,
        TRT_CHANGELOG,
        issue("NVIDIA/TensorRT", 1019),
        issue("NVIDIA/trt-samples-for-hackathon-cn", 34),
    ),
    levels=levels(trt="note"),
    check=check,
)
