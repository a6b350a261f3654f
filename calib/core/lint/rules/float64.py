"""Double precision."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import TRT_OPERATORS
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List activations of type float64; a float64 input is a warning everywhere."""
    inputs = {item.name for item in subject.network.inputs}
    for item in subject.network.activations:
        if item.elem_type == "float64":
            yield on(item.name, "input" if item.name in inputs else f"made by {item.op_type}")


RULE = Rule(
    id="float64",
    title="Tensor of double precision",
    why=(
        "TensorRT casts double to float32 and clamps what does not fit; a caller that hands float64 bytes to a "
        "float32 input calibrates on garbage. ONNX Runtime computes in double, slowly, so that the two differ in "
        "rounding."
    ),
    remedy="export the model in float32 (model.float()), and hand float32 arrays over",
    sources=(TRT_OPERATORS,),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
