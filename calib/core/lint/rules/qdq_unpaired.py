"""Halves of pairs."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.quantizers import Quantizer
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.strip import dequantizes, quantizes
from calib.core.lint.subject import Subject

MOVES = frozenset({"Clip", "Identity", "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Concat"})
"""What may stand between the halves: quantizers clip narrow ranges there, others move data in INT8."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List each Q whose integers are read by something else than a DQ, and each DQ of integers no Q made."""
    for item in subject.quantizers:
        said = _read_by(item, subject) if item.quantizes else _made_by(item, subject)
        if said:
            yield at(item.node, said)


def _read_by(item: Quantizer, subject: Subject) -> str:
    output = item.node.outputs[0]
    if output in subject.network.output_names:
        return "its integers are an output of the network"
    readers = [subject.network.nodes[use.node] for use in subject.network.consumers.get(output, ())]
    strange = [node for node in readers if not dequantizes(node) and node.op_type not in MOVES]
    return f"its integers go to {strange[0].label} ({strange[0].op_type})" if strange else ""


def _made_by(item: Quantizer, subject: Subject) -> str:
    if item.constant:
        return ""
    maker = subject.network.producer(item.node.input(0))
    if maker is None:
        return "its integers are an input of the network"
    return "" if quantizes(maker) or maker.op_type in MOVES else f"its integers come from {maker.label}"


RULE = Rule(
    id="qdq-unpaired",
    title="QuantizeLinear and DequantizeLinear that are no pair",
    why=(
        "TensorRT reads quantization from pairs around float operators. Integers that another operator reads, or that "
        "leave or enter the network, are the operator-oriented form (QLinearConv, ConvInteger), which it does not "
        "parse."
    ),
    remedy="quantize in Q/DQ form (quant_format=QDQ), with float inputs and outputs",
    sources=(TRT_QUANTIZED,),
    levels=levels(trt="warning", ort="note"),
    check=check,
)
