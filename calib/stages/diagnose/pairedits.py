"""Copies of a Q/DQ network in which some pairs are mended or passed by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calib.core.graph.stored import StoredValues
from calib.stages.diagnose.quantizer import DEQUANTIZE, QUANTIZE


def replaced_scale(model: onnx.ModelProto, output: str, scale: NDArray[np.float64], zero: int = 0) -> onnx.ModelProto:
    """Copy a Q/DQ network with another scale and zero point at one pair.

    Args:
        model: the network.
        output: what the pair's DequantizeLinear makes.
        scale: the new scale or scales.
        zero: the new zero point.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    makers = {name: node for node in copy.graph.node for name in node.output}
    second = makers[output]
    first = makers.get(second.input[0])
    stored = StoredValues(model)
    old = stored.value(second.input[1])
    kind = np.float32 if old is None else old.dtype
    old_zero = stored.value(second.input[2]) if len(second.input) > 2 and second.input[2] else None
    names = [f"{output}/scale", f"{output}/zero"]
    copy.graph.initializer.append(numpy_helper.from_array(scale.astype(kind), names[0]))
    zeros = np.full(scale.shape, zero, np.uint8 if old_zero is None else old_zero.dtype)
    copy.graph.initializer.append(numpy_helper.from_array(zeros, names[1]))
    for node in (first, second):
        if node is not None and node.op_type in QUANTIZE | DEQUANTIZE:
            inputs = [node.input[0], names[0], names[1]]
            del node.input[:]
            node.input.extend(inputs)
    return copy


def without_pairs(model: onnx.ModelProto, instead: Mapping[str, NDArray[Any] | None]) -> onnx.ModelProto:
    """Copy a Q/DQ network in which some pairs are passed by.

    Args:
        model: the network.
        instead: output of the pair's DequantizeLinear to the constant that is read in its place; None to read what the
            pair reads.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    makers = {name: node for node in copy.graph.node for name in node.output}
    for output, constant in instead.items():
        second = makers[output]
        first = makers.get(second.input[0])
        if constant is not None:
            source = f"{output}/constant"
            copy.graph.initializer.append(numpy_helper.from_array(constant.astype(np.float32), source))
        elif first is not None and first.op_type in QUANTIZE:
            source = first.input[0]
        else:
            continue
        second.CopyFrom(helper.make_node("Identity", [source], [output], name=second.name))
    return copy
