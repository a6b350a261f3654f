"""Normalisations in float16."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import FLOAT16, TRT_OPERATORS, issue
from calib.core.lint.subject import Subject, ints

NORMS = (
    "InstanceNormalization", "GroupNormalization", "LayerNormalization", "LpNormalization", "RMSNormalization",
    "MeanVarianceNormalization",
)  # fmt: skip
LIMIT = 256.0
"""Root of float16's largest value, 65504, rounded as people know it."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List each normalisation, decomposed ones too, with what is known of the magnitude of its input."""
    for node, source, how in _norms(subject):
        amax = subject.ranges.get(source)
        half = subject.network.elem_types.get(source) == "float16"
        if amax is not None and amax > LIMIT:
            yield at(node, f"{how} of {source!r}, which reaches {amax:.4g}: squares overflow", levels(trt="warning"))
        elif half:
            yield at(node, f"{how} in float16", levels(trt="warning", ort="note"))
        elif amax is None:
            yield at(node, how)


def _norms(subject: Subject) -> Iterator[tuple[Node, str, str]]:
    for node in subject.nodes(*NORMS, "ReduceMean", "ReduceL2", "ReduceSumSquare"):
        if node.input(0) not in subject.activations:
            continue
        if node.op_type in NORMS:
            yield node, node.input(0), node.op_type
        elif node.op_type in {"ReduceL2", "ReduceSumSquare"}:
            yield node, node.input(0), f"{node.op_type}, a sum of squares"
        else:
            source = _squared(node, subject)
            if source:
                yield node, source, "mean of squares (a decomposed normalisation)"


def _squared(node: Node, subject: Subject) -> str:
    """Name what a mean is the mean of the squares of; empty where it is none."""
    maker = subject.network.producer(node.input(0))
    if maker is None or ints(node, "axes") == ():
        return ""
    if maker.op_type == "Mul" and maker.input(0) == maker.input(1):
        return maker.input(0)
    return maker.input(0) if maker.op_type == "Pow" and subject.constants.scalar(maker.input(1)) == 2 else ""


RULE = Rule(
    id="norm-fp16",
    title="Normalisation that float16 may overflow",
    why=(
        "A normalisation squares its input (after subtracting the mean): beyond 256 the square leaves float16, whose "
        "largest value is 65504, and the output turns to zeros or NaN. Sums over a large map lose digits before that."
    ),
    remedy=(
        "keep normalisations in float32 in a mixed-precision plan (calib's FP16 cast does); pass observed ranges with "
        "--ranges to see which inputs exceed 256; rank them first when outputs diverge"
    ),
    sources=(
        FLOAT16,
        TRT_OPERATORS,
        issue("microsoft/onnxruntime", 10079),
        issue("NVIDIA-AI-IOT/torch2trt", 776),
        "https://github.com/neuroneural/brainchop-cli/pull/56",
    ),
    levels=levels(trt="note"),
    check=check,
)
