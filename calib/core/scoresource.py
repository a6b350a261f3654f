"""Which tensor of a network a training loss can be put on, and what its numbers mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from calib.core.graph import GraphTensor, Network, Node
from calib.core.scoremap import NUMBERING, PASSING, choose_output, output_makers
from calib.errors import ModelError

Meaning = Literal["logits", "probabilities", "log-probabilities", "binary-logits", "binary-probabilities"]


@dataclass(frozen=True)
class ScoreSource:
    """The tensor that training looks at.

    Attributes:
        tensor: its name; an output, or the scores that the network itself takes the argmax of.
        meaning: what its numbers are.
        class_axis: axis of the classes, 1 or 3.
    """

    tensor: str
    meaning: Meaning
    class_axis: int


def find_scores(network: Network, classes: int, wanted: str | None, place: str) -> ScoreSource:
    """Find the scores that a loss can be computed from.

    Args:
        network: the network.
        classes: number of classes.
        wanted: output named by the user, or None.
        place: the network, for messages.

    Raises:
        UsageError: there is no such output, or several that could be meant.
        ModelError: no output holds, or comes from, a score a class.
    """
    makers = output_makers(network)
    reading = choose_output(network.outputs, makers, classes, wanted, place)
    if reading.kind == "ids":
        return _behind_numbering(network, reading.name, classes, place)
    if reading.kind == "binary":
        return ScoreSource(reading.name, "binary-probabilities" if reading.activation else "binary-logits", 1)
    meanings: dict[str, Meaning] = {"Softmax": "probabilities", "LogSoftmax": "log-probabilities"}
    axis = 3 if reading.layout == "nhwc" else 1
    return ScoreSource(reading.name, meanings.get(reading.activation, "logits"), axis)


def _behind_numbering(network: Network, name: str, classes: int, place: str) -> ScoreSource:
    """Go back from class numbers to the scores they were chosen by."""
    node: Node | None = network.producer(name)
    while node is not None and node.op_type in PASSING:
        node = network.producer(node.input(0))
    if node is None or node.op_type not in NUMBERING:
        raise ModelError(
            f"output {name!r} of {place}",
            expected="scores, or class numbers that an ArgMax in the network chose",
            got="class numbers of unknown origin",
            remedy="export the network with its logits as the output",
        )
    source = node.input(0)
    shape = network.shapes.get(source)
    axis = int(node.attributes.get("axis", -1 if node.op_type == "TopK" else 0))  # type: ignore[arg-type]
    axis = axis % 4 if shape is None else axis % len(shape)
    maker = network.producer(source)
    while maker is not None and maker.op_type in PASSING:
        maker = network.producer(maker.input(0))
    meaning: Meaning = "probabilities" if maker is not None and maker.op_type == "Softmax" else "logits"
    _check(GraphTensor(source, network.elem_types.get(source), shape), axis, classes, place)
    return ScoreSource(source, meaning, axis)


def _check(tensor: GraphTensor, axis: int, classes: int, place: str) -> None:
    length = tensor.shape[axis] if tensor.shape is not None else None
    if axis not in (1, 3) or (length is not None and length < classes):
        raise ModelError(
            f"tensor {tensor.name!r} of {place}",
            expected=f"scores of {classes} classes along axis 1 or 3",
            got=f"{length} along axis {axis}",
            remedy="export the network with its logits as the output",
        )
