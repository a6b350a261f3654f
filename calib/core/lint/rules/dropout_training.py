"""Dropout that is active."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TORCH_EXPORT, TRT_OPERATORS, operator
from calib.core.lint.subject import Subject, number


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Dropout in training mode."""
    opset = subject.network.opset
    for node in subject.nodes("Dropout"):
        flag = subject.numbers(node.input(2)) if opset >= 12 else None
        if any(flag or ()) or (opset < 7 and not number(node, "is_test", 0)):
            yield at(node, "training mode")


RULE = Rule(
    id="dropout-training",
    title="Dropout in training mode: it drops values at random",
    why="Every run gives another result; calibration, parity checks and evaluation measure noise. TensorRT refuses it.",
    remedy="call model.eval() before the export",
    sources=(operator("Dropout"), TORCH_EXPORT, TRT_OPERATORS),
    levels=levels(trt="error", ort="warning"),
    check=check,
)
