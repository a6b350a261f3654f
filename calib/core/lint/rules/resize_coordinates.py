"""Resize that samples where PyTorch does not."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import (
    ASSUMED,
    Axis,
    Resize,
    exact_ratio,
    nearest,
    pytorch_gap,
    pytorch_nearest,
    read_resizes,
    shift,
)
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_INTERPOLATE, issue, operator
from calib.core.lint.subject import Subject

TOLERANCE = 0.01
"""Source pixels by which positions may differ before it counts."""
TENSORFLOW = ("tf2onnx", "keras", "tensorflow", "tflite")


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize whose positions, or nearest neighbours, are none that PyTorch computes."""
    producer = subject.model.producer_name
    tensorflow = isinstance(producer, str) and producer.lower().startswith(TENSORFLOW)
    for resize in read_resizes(subject):
        said = _nearest(resize) if resize.mode == "nearest" else _interpolated(resize)
        if said:
            trained = "; TensorFlow's older resizing samples so: right if the network was trained with it"
            yield at(resize.node, said + trained * tensorflow, everywhere("note") if tensorflow else None)


def _axes(resize: Resize) -> Iterator[tuple[Axis, int, int]]:
    for axis in resize.axes:
        yield axis, *(axis.lengths or (ASSUMED, 2 * ASSUMED))
    if not resize.axes and resize.by.startswith("run-time"):
        yield Axis(2, None, None, None), ASSUMED, 2 * ASSUMED


def _interpolated(resize: Resize) -> str:
    gaps = [
        (pytorch_gap(resize, before, after, axis.scale), shift(resize, before, after, axis.scale))
        for axis, before, after in _axes(resize)
        if axis.lengths is None or min(axis.lengths) > 1
    ]
    gap, moved = max(gaps, default=(0.0, 0.0))
    if gap <= TOLERANCE:
        return ""
    return f"{resize.label}: up to {gap:.3g} source pixels off, the map moves by {moved:+.2g} output pixels"


def _nearest(resize: Resize) -> str:
    for axis, before, after in _axes(resize):
        ratio = exact_ratio(axis, before, after)
        found = nearest(resize.coordinates, resize.rounding, before, after, ratio)
        if found is None:
            return f"{resize.label}: no mode of PyTorch's"
        wrong = min(int((found != other).sum()) for other in pytorch_nearest(before, after, ratio))
        if wrong:
            known = "" if axis.lengths else f" of {len(found)} at {before} to {after}"
            return f"{resize.label}: {wrong}{known or f' of {len(found)}'} neighbours along axis {axis.index} differ"
    return ""


RULE = Rule(
    id="resize-coordinates",
    title="Resize samples where PyTorch's interpolate does not",
    why=(
        "PyTorch interpolates at half-pixel positions, or from corner to corner with align_corners=True; its nearest "
        "is asymmetric with floor, its nearest-exact half-pixel rounding up. Another convention moves features and "
        "class borders by a fraction of a pixel at every such node. Runtimes compute what the node says, as the ONNX "
        "specification has it: the difference to PyTorch is expected, no runtime's bug, and not quantization's."
    ),
    remedy=(
        "export at opset 11 or higher, where the exporter writes half_pixel or align_corners; or set "
        "coordinate_transformation_mode as the network was trained, and compare one image with PyTorch"
    ),
    sources=(
        operator("Resize"),
        TORCH_INTERPOLATE,
        issue("NVIDIA/TensorRT", 273),
        issue("microsoft/onnxruntime", 28086),
    ),
    levels=everywhere("warning"),
    check=check,
)
