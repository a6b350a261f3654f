"""Resize along an axis that is not spatial."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.resize import Axis, Resize, read_resizes
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Resize that changes the batch or the channel axis.

    The channel axis is what the graph says (channels last is known from the transposes around). Where it says
    nothing, axis 1 of a picture is taken for the channels, and the last one if it is too short to be a width.
    """
    for resize in read_resizes(subject):
        wrong = [axis for axis in resize.axes if axis.index == 0 or axis.index == _channel(resize, subject)]
        for axis in wrong:
            what = "batch" if axis.index == 0 else "channel"
            yield at(resize.node, f"axis {axis.index} ({what}) goes from {axis.before} to {_after(axis)}")


def _after(axis: Axis) -> str:
    return str(axis.after) if axis.after is not None else f"{axis.scale:g} times that"


def _channel(resize: Resize, subject: Subject) -> int | None:
    known = (subject.channel_axes.get(name) for name in (resize.node.outputs[0], resize.node.input(0)))
    axis = next((item for item in known if item is not None), None)
    if axis is not None:
        return axis
    shape = subject.network.shapes.get(resize.node.input(0))
    if shape is None or len(shape) != 4:
        return None
    last, second = shape[3], shape[1]
    return 3 if last is not None and last <= 4 and (second is None or second > 4) else 1


RULE = Rule(
    id="resize-axes",
    title="Resize changes an axis that is not spatial",
    why=(
        "Resize works on any axes: the ONNX specification knows no layout. A scale on the batch or channel axis mixes "
        "images or channels, without a word from any runtime, and is usually a layout mistaken (NHWC read as NCHW)."
    ),
    remedy=(
        "give scales or sizes for the spatial axes only; in NCHW the first two are 1, in NHWC the first and the last"
    ),
    sources=(operator("Resize"), issue("microsoft/onnxruntime", 17564)),
    levels=everywhere("warning"),
    check=check,
)
