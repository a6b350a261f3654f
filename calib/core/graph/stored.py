"""Constants of a model read from the protobuf alone: neither inferred nor evaluated, so any model that parses serves.

:class:`calib.core.graph.ConstantReader` folds whatever ONNX's evaluator can; this one follows what hands a value on.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

DEEP = 16
"""Nodes that may stand between a stored constant and its reader."""

HANDED_ON = frozenset({"Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"})
SCALARS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten"})
"""Nodes whose target shape is not looked at: they serve for scalars, whose shape does not matter."""


def refill(tensor: onnx.TensorProto, value: NDArray[Any]) -> None:
    """Give a stored tensor another value; its name and its description stay.

    Args:
        tensor: changed in place.
        value: of any type and shape, which become the tensor's.
    """
    kept = onnx.TensorProto(name=tensor.name, doc_string=tensor.doc_string)
    tensor.CopyFrom(numpy_helper.from_array(value))
    tensor.MergeFrom(kept)


def _replayed(value: NDArray[Any] | None, steps: list[onnx.NodeProto]) -> NDArray[Any] | None:
    for node in reversed(steps):
        if value is None:
            return None
        if node.op_type == "Cast":
            value = _cast(value, node)
        elif node.op_type == "Transpose":
            perm = next((list(item.ints) for item in node.attribute if item.name == "perm"), None)
            value = value.transpose(perm) if perm is None or sorted(perm) == list(range(value.ndim)) else None
        elif node.op_type in SCALARS and value.size > 1 and value.ndim > 1:
            return None
    return value


def _cast(value: NDArray[Any], node: onnx.NodeProto) -> NDArray[Any] | None:
    target = next((item.i for item in node.attribute if item.name == "to"), 0)
    try:
        with np.errstate(all="ignore"):
            return value.astype(helper.tensor_dtype_to_np_dtype(target))
    except (KeyError, TypeError, ValueError):
        return None


def _constant(node: onnx.NodeProto) -> NDArray[Any] | None:
    for item in node.attribute:
        if item.name == "value":
            return _array(item.t)
        if item.name in {"value_float", "value_floats"}:
            return np.asarray(helper.get_attribute_value(item), np.float32)
        if item.name in {"value_int", "value_ints"}:
            return np.asarray(helper.get_attribute_value(item), np.int64)
    return None


def _array(tensor: onnx.TensorProto) -> NDArray[Any] | None:
    """Decode a stored tensor; None where its data do not fit its type and shape."""
    try:
        value = np.asarray(numpy_helper.to_array(tensor))
    except Exception:  # noqa: BLE001  numpy and onnx raise all kinds for damaged tensors
        return None
    return value.astype(np.float32) if value.dtype.name == "bfloat16" else value


class StoredValues:
    """The stored constants of a model's main graph.

    Args:
        model: external data loaded.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers = {name: node for node in model.graph.node for name in node.output if name}
        self.constants = set(self.initializers)
        for node in model.graph.node:
            inputs = [name for name in node.input if name]
            if node.op_type == "Constant" or (inputs and all(name in self.constants for name in inputs)):
                self.constants.update(node.output)

    def root(self, name: str) -> str:
        """Follow a constant back to the initialiser or Constant node it comes from, first inputs only."""
        for _ in range(DEEP):
            maker = self._makers.get(name)
            if maker is None or not maker.input or not maker.input[0]:
                break
            name = maker.input[0]
        return name

    def value(self, name: str) -> NDArray[Any] | None:
        """Read a constant through the nodes that hand it on; None where it is computed or damaged.

        The shape of a scalar behind Reshape and the like may differ; bfloat16 comes as float32.
        """
        steps: list[onnx.NodeProto] = []
        for _ in range(DEEP):
            if name in self.initializers:
                return _replayed(_array(self.initializers[name]), steps)
            maker = self._makers.get(name)
            if maker is None:
                return None
            if maker.op_type == "Constant":
                return _replayed(_constant(maker), steps)
            if maker.op_type not in HANDED_ON or not maker.input:
                return None
            steps.append(maker)
            name = maker.input[0]
        return None
