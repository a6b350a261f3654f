"""Which tensors are constant, which follow from shapes alone, and what the constants' values are."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from calib.core.graph.network import Network, Node, Use

RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial"}
)
SHAPE_SOURCES = frozenset({"Shape", "Size"})
SHAPE_SLOTS: Mapping[str, frozenset[int]] = {
    "Reshape": frozenset({1}), "Resize": frozenset({1, 2, 3}), "Upsample": frozenset({1}), "Expand": frozenset({1}),
    "Slice": frozenset({1, 2, 3, 4}), "Tile": frozenset({1}), "Pad": frozenset({1, 3}), "Squeeze": frozenset({1}),
    "Unsqueeze": frozenset({1}), "Split": frozenset({1}), "TopK": frozenset({1}), "ConstantOfShape": frozenset({0}),
    "AffineGrid": frozenset({1}), "CenterCropPad": frozenset({1}), "OneHot": frozenset({1}), "Shape": frozenset({0}),
    "Size": frozenset({0}),
}  # fmt: skip
"""Input slots that take a shape, an axis or a scale rather than data."""

SMALL = 16
CONSTANT, FROM_SHAPE, DATA = 0, 1, 2


def levels(
    nodes: tuple[Node, ...], order: Iterable[int], inputs: Iterable[str], fixed: Iterable[str]
) -> dict[str, int]:
    """Grade every tensor: known from the file alone, from the input's shape too, or from the input's values."""
    grade = dict.fromkeys(fixed, CONSTANT)
    grade.update(dict.fromkeys(inputs, DATA))
    for index in order:
        node = nodes[index]
        level = _level(node, grade)
        grade.update((name, level) for name in node.outputs if name)
    return grade


def _level(node: Node, grade: Mapping[str, int]) -> int:
    if node.op_type in RANDOM and not node.domain:
        return DATA
    level = max((grade[name] for name in (*node.inputs, *node.captured) if name), default=CONSTANT)
    if node.op_type in SHAPE_SOURCES and not node.domain:
        return min(level, FROM_SHAPE)
    return level


def data_like(
    nodes: tuple[Node, ...],
    order: Iterable[int],
    grade: Mapping[str, int],
    consumers: Mapping[str, tuple[Use, ...]],
    outputs: Iterable[str],
) -> frozenset[str]:
    """Find the tensors made from shapes alone that are then used as data: coordinate grids, positional codes.

    The others size a Reshape or a Resize; they never meet an activation and need no range.
    """
    found = {name for name in outputs if grade.get(name) == FROM_SHAPE}
    for index in reversed(tuple(order)):
        for name in filter(None, nodes[index].outputs):
            uses = consumers.get(name, ())
            if grade[name] == FROM_SHAPE and any(_meets_data(nodes[use.node], use, grade, found) for use in uses):
                found.add(name)
    return frozenset(found)


def _meets_data(node: Node, use: Use, grade: Mapping[str, int], found: set[str]) -> bool:
    if not node.domain and use.slot in SHAPE_SLOTS.get(node.op_type, ()):
        return False
    return any(grade[name] == DATA or name in found for name in node.outputs if name)


def small_constants(model: onnx.ModelProto) -> Iterator[tuple[str, tuple[float, ...]]]:
    """List the numeric constants of few elements that the file stores: initialisers and Constant nodes."""
    for tensor in model.graph.initializer:
        yield from ((tensor.name, values) for values in _few(tensor))
    for node in model.graph.node:
        for item in node.attribute if node.op_type == "Constant" else ():
            if item.name == "value":
                yield from ((node.output[0], values) for values in _few(item.t))
            elif item.name in {"value_float", "value_int", "value_floats", "value_ints"}:
                value = np.atleast_1d(helper.get_attribute_value(item))
                yield from [(node.output[0], tuple(map(float, value)))] if value.size <= SMALL else []


def _few(tensor: onnx.TensorProto) -> Iterator[tuple[float, ...]]:
    if math.prod(tensor.dims) > SMALL or tensor.data_type == onnx.TensorProto.STRING:
        return
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        value = np.asarray(onnx.numpy_helper.to_array(tensor))
        if _numeric(value) or value.dtype.kind == "b":
            yield tuple(float(item) for item in value.ravel())


class ConstantReader:
    """Reads the value of any constant of a model, folding the nodes that make it.

    Args:
        model: the network, external data loaded.
        network: its analysis.
    """

    def __init__(self, model: onnx.ModelProto, network: Network) -> None:
        self._model = model
        self._network = network
        self._initializers = {tensor.name: tensor for tensor in model.graph.initializer}
        self._cache: dict[str, NDArray[Any] | None] = {}

    def value(self, name: str) -> NDArray[Any] | None:
        """Read a constant; None when the tensor is not constant or cannot be folded here (a custom operator)."""
        if name not in self._network.constants:
            return None
        if name not in self._cache:
            self._cache[name] = self._read(name)
        return self._cache[name]

    def scalar(self, name: str) -> float | None:
        """Read a constant of one element as a number, else None."""
        value = self.value(name) if name else None
        return float(value.reshape(())) if value is not None and value.size == 1 and _numeric(value) else None

    def _read(self, name: str) -> NDArray[Any] | None:
        if name in self._initializers:
            return np.asarray(onnx.numpy_helper.to_array(self._initializers[name]))
        producer = self._network.producer(name)
        if producer is None:
            return None
        stored = [item.t for item in self._model.graph.node[producer.index].attribute if item.name == "value"]
        if producer.op_type == "Constant" and stored:
            return np.asarray(onnx.numpy_helper.to_array(stored[0]))
        return self._fold(name)

    def _fold(self, name: str) -> NDArray[Any] | None:
        from onnx.reference import ReferenceEvaluator

        chain, leaves = self._ancestors(name)
        graph = helper.make_graph(
            chain, "fold", [], [helper.make_empty_tensor_value_info(name)], [self._initializers[x] for x in leaves]
        )
        opsets = list(self._model.opset_import)
        try:
            model = helper.make_model(graph, opset_imports=opsets, functions=list(self._model.functions))
            (value,) = ReferenceEvaluator(model).run(None, {})
        except Exception:  # noqa: BLE001  the evaluator raises anything for operators it lacks
            return None
        return np.asarray(value) if isinstance(value, np.ndarray | np.generic) else None

    def _ancestors(self, name: str) -> tuple[list[onnx.NodeProto], list[str]]:
        wanted: set[int] = set()
        leaves: dict[str, None] = {}
        pending = [name]
        while pending:
            tensor = pending.pop()
            index = self._network.producers.get(tensor)
            if index is None:
                leaves.update({tensor: None} if tensor in self._initializers else {})
            elif index not in wanted:
                wanted.add(index)
                node = self._network.nodes[index]
                pending.extend(filter(None, (*node.inputs, *node.captured)))
        chain = [self._model.graph.node[index] for index in self._network.order if index in wanted]
        return chain, list(leaves)


def _numeric(value: NDArray[Any]) -> bool:
    return value.dtype.kind in "fiub" or value.dtype.name in {"bfloat16", "float16"}
