"""Float layers between INT8 layers."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.subject import Subject
from calib.core.roles import COMPUTE


def check(subject: Subject) -> Iterator[Sighting]:
    """List layers with constant weights that run in float between layers that run in INT8.

    Gates, global context, logits, grouped transposed convolutions, and layers that a pair feeds in half are others'.
    """
    if not subject.int8:
        return
    network, roles = subject.twin, subject.roles
    expected = roles.logits | roles.gates | roles.context
    int8 = {index for index in range(len(network.nodes)) if _runs_int8(index, subject)}
    before, behind = _reached(subject, int8, forward=True), _reached(subject, int8, forward=False)
    for index in network.order:
        node = network.nodes[index]
        original = subject.original(index) if node.op_type in COMPUTE and not node.domain else None
        if original is None or index in int8 | expected or index not in before or index not in behind:
            continue
        grouped = node.op_type == "ConvTranspose" and node.attributes.get("group", 1) != 1
        weight, data = subject.weight_input(original), subject.data_input(original)
        touched = subject.from_dequantize(data) or subject.quantized_constant(weight) is not None
        if weight and not grouped and not touched:
            yield at(original, node.op_type)


def _runs_int8(index: int, subject: Subject) -> bool:
    node = subject.twin.nodes[index]
    if node.domain or node.op_type not in COMPUTE:
        return False
    original = subject.original(index)
    return original is not None and subject.is_int8(original)


def _reached(subject: Subject, int8: set[int], *, forward: bool) -> set[int]:
    """Indices of the nodes behind (or before) some INT8 layer."""
    network = subject.twin
    reached: set[int] = set()
    tensors: set[str] = set()
    for index in network.order if forward else reversed(network.order):
        node = network.nodes[index]
        arrives, leaves = (node.inputs, node.outputs) if forward else (node.outputs, node.inputs)
        if tensors.intersection(filter(None, arrives)):
            reached.add(index)
        if index in reached or index in int8:
            tensors.update(filter(None, leaves))
    return reached


RULE = Rule(
    id="qdq-island",
    title="Layer in float between INT8 layers",
    why=(
        "Values go from INT8 to float and back for this layer: two reformats and a float kernel. Where it was not "
        "kept in float on purpose, its pair was forgotten, or its tensor had no range."
    ),
    remedy="give its input and its weight Q/DQ pairs, or note why it is float",
    sources=(TRT_QUANTIZED,),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
