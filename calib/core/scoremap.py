"""What a segmentation network's output is, and how it becomes a class map at the label's size.

Exports differ: logits or probabilities, channels first or last, at the input's resolution or a fraction of it, one
channel for two classes, or class numbers with the argmax already in the graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import FLOAT_TYPES, GraphTensor, Network, Node
from calib.core.outputshape import output_remarks
from calib.core.preprocess import Geometry
from calib.core.upsample import Sampling, predict_binary, predict_classes, predict_nearest, sampling
from calib.errors import ModelError, UsageError

Kind = Literal["scores", "binary", "ids"]
PASSING = frozenset(
    {"Cast", "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "QuantizeLinear"}
    | {"DequantizeLinear", "Resize", "Upsample", "Slice", "Pad", "Dropout"}
)
"""Operators that leave the meaning of numbers as it is."""
SIGMOIDS = frozenset({"Sigmoid", "HardSigmoid"})
NUMBERING = frozenset({"ArgMax", "TopK"})
"""Operators that answer with class numbers."""
FOREIGN_LISTED = 16
"""Foreign ids listed at most; an output that is no class map may hold any number of them."""


@dataclass(frozen=True)
class OutputReading:
    """How to read a network's output.

    Attributes:
        name: the output.
        kind: ``scores``, a channel a class; ``binary``, one channel for two classes; ``ids``, class numbers.
        threshold: for ``binary``: class 1 lies above it.
        activation: operator that made the scores, where it tells (``Softmax``, ``Sigmoid``, ``ArgMax``), or empty.
        layout: ``nchw``, ``nhwc`` or ``auto``.
    """

    name: str
    kind: Kind
    threshold: float = 0.0
    activation: str = ""
    layout: Literal["nchw", "nhwc", "auto"] = "auto"

    @property
    def words(self) -> str:
        """Say for a report what is read."""
        made = f" (after {self.activation})" if self.activation else ""
        if self.kind == "ids":
            return f"class numbers{made}, brought to the label's size by the nearest cell"
        if self.kind == "binary":
            return f"one channel{made}, class 1 above {self.threshold:g}"
        return f"a channel a class{made}"


@dataclass(frozen=True)
class Prediction:
    """The class map of one image.

    Attributes:
        ids: uint8 or uint16 ``[H, W]``; the dtype's second-highest code is no class.
        ties: pixels whose best score several classes share; None where the network's own argmax hides them.
        lost: pixels with a NaN among their scores.
        foreign: prediction outside the class table to pixels, the most frequent ones.
        remarks: what is odd about the output.
    """

    ids: NDArray[Any]
    ties: int | None
    lost: int
    foreign: Mapping[int, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def choose_output(
    outputs: Sequence[GraphTensor], makers: Mapping[str, str], classes: int, wanted: str | None, place: str
) -> OutputReading:
    """Decide which output is scored, and what it is.

    Args:
        outputs: of the network.
        makers: operator type that decides what each output's numbers mean (:func:`output_makers`).
        classes: number of classes.
        wanted: name given by the user, or None.
        place: the network, for messages.

    Raises:
        UsageError: there is no such output, or several that could be meant.
        ModelError: no output can be a class map.
    """
    named = {tensor.name: tensor for tensor in outputs}
    if wanted is not None:
        if wanted not in named:
            raise UsageError(
                f"--output-name {wanted}, {place}", expected="one of " + _listed(outputs), got=repr(wanted),
                remedy="name an output of the network",
            )  # fmt: skip
        return read_output(named[wanted], makers.get(wanted, ""), classes, place)
    fitting = [item for item in outputs if _may_fit(item, makers.get(item.name, ""), classes)] or list(outputs)
    if len(fitting) > 1:
        raise UsageError(
            f"outputs of {place}", expected="one output to score", got=_listed(fitting),
            remedy=f"say which with --output-name, for example --output-name {fitting[0].name}",
        )  # fmt: skip
    return read_output(fitting[0], makers.get(fitting[0].name, ""), classes, place)


def read_output(tensor: GraphTensor, maker: str, classes: int, place: str) -> OutputReading:
    """Decide what one output is, from its type, its shape and the operator that makes it.

    Raises:
        ModelError: it cannot be a class map of this many classes.
    """
    activation = maker if maker in {"Softmax", "LogSoftmax", "ArgMax", *SIGMOIDS} else ""
    shape = tensor.shape
    if not _may_fit(tensor, maker, classes):
        raise _no_class_map(f"output {tensor.name!r} of {place}", shape or (), classes)
    if maker in NUMBERING or (_is_whole(tensor) and (shape is None or _is_single(shape))):
        return OutputReading(tensor.name, "ids", activation=activation)
    if classes == 2 and shape is not None and _is_single(shape):
        threshold = 0.5 if activation in SIGMOIDS else 0.0
        return OutputReading(tensor.name, "binary", threshold, activation)
    return OutputReading(tensor.name, "scores", activation=activation, layout=_static_layout(shape, classes))


def output_makers(network: Network) -> dict[str, str]:
    """Operator type that decides what each output's numbers mean, behind those that only move or resize them."""
    return {tensor.name: _maker(network, tensor.name) for tensor in network.outputs}


def _maker(network: Network, name: str) -> str:
    node: Node | None = network.producer(name)
    while node is not None and node.op_type in PASSING:
        node = network.producer(node.input(0))
    return node.op_type if node is not None else ""


def _may_fit(tensor: GraphTensor, maker: str, classes: int) -> bool:
    """Whether a declared shape can be a class map; an unknown one can."""
    shape = tensor.shape
    if shape is None:
        return True
    numbers = maker in NUMBERING or _is_whole(tensor)
    if len(shape) == 4:
        return (_is_single(shape) and (numbers or classes == 2)) or _channel_axis(shape, classes) is not None
    return (len(shape) == 3 and (numbers or classes == 2)) or (len(shape) == 2 and numbers)


def _is_whole(tensor: GraphTensor) -> bool:
    return tensor.elem_type is not None and tensor.elem_type not in FLOAT_TYPES


def _channel_axis(shape: Sequence[int | None], classes: int) -> int | None:
    """Axis of a rank-4 shape, 1 or 3, that holds a channel a class; None where neither can.

    More channels than classes are possible, but then as channels: fewer than rows and columns. Else a network of too
    few classes would pass for one with its channels last and as many as it has columns. Where rows and columns are open
    and axis 1 is not, that holds the channels.
    """
    for axis in (1,) if shape[1] is not None and shape[2] is shape[3] is None else (1, 3):
        if shape[axis] is None or shape[axis] == classes:
            return axis
    for axis, others in ((1, (2, 3)), (3, (1, 2))):
        length, sides = shape[axis] or 0, [shape[other] for other in others]
        if length > classes and all(side is None or side > length for side in sides):
            return axis
    return None


def _is_single(shape: Sequence[int | None]) -> bool:
    return len(shape) in (2, 3) or (len(shape) == 4 and 1 in (shape[1], shape[3]))


def _static_layout(shape: Sequence[int | None] | None, classes: int) -> Literal["nchw", "nhwc", "auto"]:
    if shape is None or len(shape) != 4:
        return "auto"
    first, last = shape[1] == classes, shape[3] == classes
    if first != last:
        return "nchw" if first else "nhwc"
    return "auto"


def planes_of(
    array: NDArray[Any], reading: OutputReading, classes: int, network: tuple[int, int], place: str
) -> NDArray[Any]:
    """View an output as ``[N, C, h, w]`` (``scores``) or ``[N, h, w]`` (``binary``, ``ids``).

    Args:
        array: the output of a batch.
        reading: what it is.
        classes: number of classes.
        network: ``(height, width)`` of the network input, which tells channels from columns when both fit.
        place: network and output, for messages.

    Raises:
        ModelError: the shape is none of a class map.
    """
    if reading.kind != "scores":
        if array.ndim == 4 and 1 in (array.shape[1], array.shape[3]):
            return array[:, 0] if array.shape[1] == 1 else array[..., 0]
        if array.ndim in (2, 3):
            return array if array.ndim == 3 else array[None]
        raise _no_class_map(place, array.shape, classes)
    layout = _layout_of(array.shape, classes, network) if array.ndim == 4 else None
    if reading.layout != "auto":
        layout = reading.layout
    if layout is None or array.ndim != 4:
        raise _no_class_map(place, array.shape, classes)
    planes = array if layout == "nchw" else np.moveaxis(array, -1, 1)
    if planes.shape[1] < classes:
        raise _no_class_map(place, array.shape, classes)
    return planes


def _layout_of(shape: tuple[int, ...], classes: int, network: tuple[int, int]) -> str | None:
    """Choose the layout whose channels are the classes; where both axes fit, that with the input's aspect."""
    if shape[1] == shape[3] == classes:
        first, last = (
            abs(np.log(height * network[1] / (width * network[0]))) for height, width in (shape[2:], shape[1:3])
        )
        return "nchw" if first <= last else "nhwc"
    axis = _channel_axis(shape, classes)
    return None if axis is None else "nchw" if axis == 1 else "nhwc"


def predict(
    planes: NDArray[Any], reading: OutputReading, plan: Geometry, size: tuple[int, int], classes: int
) -> Prediction:
    """Bring one image's scores to the label's size and decide every pixel.

    Args:
        planes: ``[C, h, w]`` scores, or ``[h, w]``.
        reading: what they are.
        plan: where the picture lies in the network input.
        size: ``(height, width)`` of the part of the label that the network saw.
        classes: number of classes.
    """
    found = _predicted(planes, reading, plan, size, classes)
    return replace(found, remarks=output_remarks(planes.shape, classes, plan.network))


def _predicted(
    planes: NDArray[Any], reading: OutputReading, plan: Geometry, size: tuple[int, int], classes: int
) -> Prediction:
    height, width = planes.shape[-2:]
    box, net = plan.content, plan.network
    rows = sampling(size[0], height, net[0], box.top, box.bottom - box.top)
    columns = sampling(size[1], width, net[1], box.left, box.right - box.left)
    dtype = np.uint8 if classes <= 254 else np.uint16
    if reading.kind == "ids":
        return _read_ids(planes, rows, columns, classes, dtype)
    ids = np.empty(size, dtype)
    if reading.kind == "binary":
        scores = planes.astype(np.float32, copy=False)
        ties, lost = predict_binary(scores, reading.threshold, rows, columns, ids)
        return Prediction(ids, ties, lost)
    ties, lost = predict_classes(planes.astype(np.float32, copy=False), rows, columns, ids, classes)
    foreign = _count_foreign(ids, classes) if planes.shape[0] > classes or lost else {}
    foreign.pop(int(np.iinfo(dtype).max) - 1, None)
    return Prediction(ids, ties, lost, foreign)


def _read_ids(
    planes: NDArray[Any], rows: Sampling, columns: Sampling, classes: int, dtype: type[np.uint8] | type[np.uint16]
) -> Prediction:
    nothing = int(np.iinfo(dtype).max) - 1
    raw = predict_nearest(planes, rows, columns)
    lost = int(np.count_nonzero(np.isnan(raw))) if raw.dtype.kind == "f" else 0
    known = (raw >= 0) & (raw < classes)
    whole = np.where(known, raw, nothing).astype(dtype)
    if known.all():
        return Prediction(whole, None, 0)
    values = raw[~known]
    foreign = Counter(values[~np.isnan(values)].astype(np.int64).tolist() if raw.dtype.kind == "f" else values.tolist())
    return Prediction(whole, None, lost, dict(foreign.most_common(FOREIGN_LISTED)))


def _count_foreign(ids: NDArray[Any], classes: int) -> dict[int, int]:
    values, counts = np.unique(ids[ids >= classes], return_counts=True)
    return {int(value): int(count) for value, count in zip(values, counts, strict=True)}


def with_threshold(reading: OutputReading, threshold: float | None) -> OutputReading:
    """Replace the threshold of a one-channel output by the user's."""
    return reading if threshold is None else replace(reading, threshold=threshold)


def _listed(tensors: Iterable[GraphTensor]) -> str:
    return ", ".join(
        f"{tensor.name} ({tensor.elem_type or 'unknown type'} {_shape_text(tensor.shape)})" for tensor in tensors
    )


def _shape_text(shape: Sequence[int | None] | None) -> str:
    return "of unknown shape" if shape is None else "x".join("?" if item is None else str(item) for item in shape)


def _no_class_map(place: str, shape: Sequence[int | None], classes: int) -> ModelError:
    single = ", or one channel" if classes == 2 else ""
    return ModelError(
        place,
        expected=f"a class map: a batch of {classes} channels{single}, or of class numbers",
        got=f"shape {_shape_text(shape)}",
        remedy="compare the manifest's classes with those the network was trained on, or choose another --output-name",
    )
