"""GridSample of opset 20 on parsers that know opset 16."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TORCH_GRID_SAMPLE, issue, operator
from calib.core.lint.subject import Subject, text


def check(subject: Subject) -> Iterator[Sighting]:
    """List each interpolating GridSample of opset 20 or higher."""
    if subject.network.opset < 20:
        return
    for node in subject.nodes("GridSample"):
        mode = text(node, "mode", "linear")
        if mode != "nearest":
            yield at(node, f"mode {mode}, opset {subject.network.opset}")


RULE = Rule(
    id="gridsample-opset",
    title="GridSample of opset 20, which TensorRT's parser takes for nearest sampling without a word",
    why=(
        "Opset 20 renamed the modes bilinear and bicubic to linear and cubic. TensorRT's parser, seen in 10.13 and "
        "11.1, knows the old names only and samples the nearest pixel instead. By the specification linear is "
        "bilinear: ONNX Runtime is right."
    ),
    remedy="export at opset 16 to 19, where TensorRT's results agree; else compare this node's output in TensorRT",
    sources=(
        operator("GridSample"),
        TORCH_GRID_SAMPLE,
        issue("NVIDIA/TensorRT", 4646),
        "https://github.com/onnx/onnx-tensorrt/pull/1060",
    ),
    levels=levels(trt="warning"),
    check=check,
)
