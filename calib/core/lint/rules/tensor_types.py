"""Element types that TensorRT does not compute with."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, levels, on
from calib.core.lint.sources import TRT_OPERATORS
from calib.core.lint.subject import Subject

UNKNOWN = frozenset({"string", "complex64", "complex128", "int16", "uint16", "uint32", "uint64"})
CASTS = frozenset({"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear", "Identity"})


def check(subject: Subject) -> Iterator[Sighting]:
    """List tensors, computed from the input, of a type that TensorRT lacks or takes at its borders only."""
    network = subject.network
    inputs = {item.name for item in network.inputs}
    computed = [
        (name, network.nodes[index]) for index in network.order for name in network.nodes[index].outputs if name
    ]
    for name, node in ((item.name, None) for item in network.inputs):
        yield from _sightings(name, node, inputs, subject)
    for name, maker in computed:
        if name not in network.constants:
            yield from _sightings(name, maker, inputs, subject)


def _sightings(name: str, node: Node | None, inputs: set[str], subject: Subject) -> Iterator[Sighting]:
    elem_type = subject.network.elem_types.get(name)
    if elem_type in UNKNOWN and not (node is not None and node.op_type in CASTS - {"Cast", "CastLike"}):
        yield on(name, f"{elem_type}{'' if node is None else f', made by {node.label}'}")
    elif elem_type == "uint8" and not _at_border(name, node, inputs, subject):
        yield on(name, f"uint8, computed on inside the network{'' if node is None else f' by {node.label}'}")


def _at_border(name: str, node: Node | None, inputs: set[str], subject: Subject) -> bool:
    """Tell whether a uint8 tensor is only cast: on its way in or out, which TensorRT takes."""
    if node is not None and (node.op_type in CASTS or node.domain):
        return True
    readers = [subject.network.nodes[use.node] for use in subject.network.consumers.get(name, ())]
    return name in inputs and all(reader.op_type in CASTS | {"Shape"} for reader in readers)


RULE = Rule(
    id="tensor-types",
    title="Tensor of a type that TensorRT does not compute with",
    why=(
        "TensorRT knows FP32, FP16, BF16, INT64, INT32 and BOOL, INT8 and FP8 behind Q/DQ, and UINT8 as input or "
        "output that is cast at once; the parser refuses other types."
    ),
    remedy="cast to float32 or int32 right behind the input, or move this part into the preprocessing",
    sources=(TRT_OPERATORS,),
    levels=levels(trt="error"),
    check=check,
)
