"""Weights that are listed as inputs."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph.structure import initializer_names
from calib.core.lint.rule import Rule, Sighting, levels, whole
from calib.core.lint.sources import ONNX_IR, TORCH_EXPORT
from calib.core.lint.subject import Subject

SHOWN = 3


def check(subject: Subject) -> Iterator[Sighting]:
    """Report a network whose initialisers are inputs too."""
    graph = subject.model.graph
    stored = set(initializer_names(graph))
    listed = [value.name for value in graph.input if value.name in stored]
    if listed:
        names = ", ".join(map(repr, listed[:SHOWN])) + (", …" if len(listed) > SHOWN else "")
        yield whole(f"{len(listed)} of {len(stored)} initialisers ({names}), IR version {subject.model.ir_version}")


RULE = Rule(
    id="initializer-inputs",
    title="Initialisers are listed as graph inputs",
    why=(
        "Each is then only the default of an input that a caller may replace: runtimes must not treat it as constant. "
        "ONNX Runtime folds neither BatchNormalization nor shapes into it, and per-channel quantization has no "
        "weight."
    ),
    remedy="export with keep_initializers_as_inputs=False, or remove them from graph.input (IR version 4 and higher)",
    sources=(ONNX_IR, TORCH_EXPORT),
    levels=levels(trt="note", ort="warning"),
    check=check,
)
