"""Cast the float32 parts of a network to float16, for a strongly typed TensorRT network that runs both.

A node runs in one type; casts stand where a tensor goes from a node of one type to a node of the other. Left in float32
are normalisations, reductions and exponentials, nodes whose values leave the range of float16, recurrent and custom
operators, whatever a subgraph reads, and Q/DQ pairs (with the layer they feed) whose scales float16 cannot hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.core.graph import Network, Node, Use, analyse
from calib.core.graph.naming import fresh
from calib.errors import ModelError
from calib.stages.convert_opset import convert_opset

HALF_OPSET = 19
"""First opset with float16 scales of Q/DQ."""
LARGEST = 65504.0 / 2
"""Largest magnitude that is trusted to float16; a factor of two is left for values calibration has not seen."""
SMALLEST_SCALE = 2.0**-14
"""Smallest normal float16; below it scales lose precision."""

FLOAT32_OPERATORS = frozenset(
    {
        "InstanceNormalization", "GroupNormalization", "LayerNormalization", "LpNormalization", "RMSNormalization",
        "MeanVarianceNormalization", "Softmax", "LogSoftmax", "Softplus", "Exp", "Log", "Pow", "Sqrt", "Reciprocal",
        "ReduceSum", "ReduceMean", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceProd",
        "ReduceSumSquare", "CumSum", "Erf", "LSTM", "GRU", "RNN", "If", "Loop", "Scan", "Range", "RandomNormal",
        "RandomUniform", "RandomNormalLike", "RandomUniformLike", "EyeLike", "ConstantOfShape", "NonMaxSuppression",
        "RoiAlign", "MaxRoiPool", "Einsum", "Det", "BitCast", "DynamicQuantizeLinear", "MelWeightMatrix",
        "HannWindow", "HammingWindow", "BlackmanWindow", "Optional", "SequenceConstruct", "Multinomial", "Bernoulli",
    }
)  # fmt: skip
"""Operators that need more than ten bits of mantissa, or whose types are not their inputs'."""

FLOAT32_SLOTS: Mapping[str, Collection[int]] = {"Resize": (1, 2), "Upsample": (1,)}
"""Inputs that are float32 whatever the node computes in."""

QUANTIZERS = ("QuantizeLinear", "DequantizeLinear")
CAST_TO_FLOAT = onnx.TensorProto.FLOAT


@dataclass(frozen=True)
class Halved:
    """A network with its float16 parts.

    Attributes:
        model: the new model; the one it was made from is unchanged.
        half: labels of the nodes that run in float16.
        kept: label of each node left in float32, with the reason.
    """

    model: onnx.ModelProto
    half: tuple[str, ...]
    kept: Mapping[str, str]


def halve(model: onnx.ModelProto, ranges: Mapping[str, float] | None = None) -> Halved:
    """Cast what can be cast; inputs and outputs keep their types and names.

    Args:
        model: external data loaded; may hold Q/DQ.
        ranges: observed amax by tensor name, to keep what overflows in float32; without them values are trusted.

    Raises:
        ModelError: the opset cannot be raised to 19.
    """
    raised = convert_opset(model, HALF_OPSET)
    network = analyse(raised)
    stored = {tensor.name: tensor for tensor in raised.graph.initializer}
    kept = _spread(network, dict(_kept(network, stored, ranges or {})))
    writer = _Writer(raised, network, kept)
    half = tuple(node.label for node in network.nodes if node.index not in kept)
    return Halved(writer.write(), half, {network.nodes[index].label: why for index, why in kept.items()})


def _kept(
    network: Network, stored: Mapping[str, onnx.TensorProto], ranges: Mapping[str, float]
) -> Iterator[tuple[int, str]]:
    """Nodes that must stay in float32 for a reason of their own."""
    captured = frozenset(name for node in network.nodes for name in node.captured)
    for node in network.nodes:
        reason = _reason(node, network, captured) or _overflow(node, network, stored, ranges)
        if reason:
            yield node.index, reason


def _reason(node: Node, network: Network, captured: frozenset[str]) -> str:
    tensors = [name for name in (*node.inputs, *node.outputs) if name]
    if node.domain:
        return "custom operator"
    if node.op_type in FLOAT32_OPERATORS:
        return "needs float32's precision, or has types of its own"
    if node.captured or not captured.isdisjoint(node.outputs):
        return "read by a subgraph"
    if any(network.elem_types.get(name) is None for name in tensors):
        return "a tensor of unknown type"
    return ""


def _overflow(node: Node, network: Network, stored: Mapping[str, onnx.TensorProto], ranges: Mapping[str, float]) -> str:
    """Values, weights or scales that float16 cannot hold."""
    for name in filter(None, (*node.inputs, *node.outputs)):
        if ranges.get(name, 0.0) > LARGEST:
            return f"{name!r} reaches {ranges[name]:.4g}"
    for slot, name in enumerate(node.inputs):
        if name not in stored or network.elem_types.get(name) != "float32" or slot in _float32_slots(node):
            continue
        values = np.abs(numpy_helper.to_array(stored[name]))
        if values.size and not float(values.max()) <= LARGEST:
            return f"constant {name!r} reaches {float(values.max()):.4g}"
        if node.op_type in QUANTIZERS and slot == 1 and float(values.min()) < SMALLEST_SCALE:
            return f"scale {name!r} is as small as {float(values.min()):.3g}"
    return ""


def _float32_slots(node: Node) -> Collection[int]:
    return FLOAT32_SLOTS.get(node.op_type, ())


def _spread(network: Network, kept: dict[int, str]) -> dict[int, str]:
    """Keep whole groups: a layer, the Q/DQ pairs that feed it, and the layers they feed besides."""
    changed = True
    while changed:
        changed = False
        for node in network.nodes:
            if node.op_type not in QUANTIZERS:
                continue
            group = [node.index, *_group(node, network)]
            held = next((index for index in group if index in kept), None)
            missing = [index for index in group if index not in kept]
            if held is not None and missing:
                reason = f"quantized together with {network.nodes[held].label}"
                kept |= dict.fromkeys(missing, reason)
                changed = True
    return kept


def _group(node: Node, network: Network) -> Iterator[int]:
    """What must have a Q/DQ node's type: its other half, and of DequantizeLinear the layers it feeds."""
    if node.op_type == "DequantizeLinear":
        producer = network.producer(node.inputs[0])
        if producer is not None and producer.op_type == "QuantizeLinear":
            yield producer.index
    for use in _uses(network, node.outputs[0]):
        if node.op_type == "DequantizeLinear" or network.nodes[use.node].op_type == "DequantizeLinear":
            yield use.node


def _uses(network: Network, tensor: str) -> Iterable[Use]:
    return network.consumers.get(tensor, ())


class _Writer:
    """Writes the casts and the float16 constants."""

    def __init__(self, model: onnx.ModelProto, network: Network, kept: Collection[int]) -> None:
        self._network, self._kept = network, kept
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        self._taken = set(network.names)
        self._cast: dict[tuple[str, bool], str] = {}
        self._casts: dict[str, list[onnx.NodeProto]] = {}
        self._stored = {tensor.name: tensor for tensor in self._model.graph.initializer}
        self._added: list[onnx.TensorProto] = []

    def write(self) -> onnx.ModelProto:
        """Rewrite every node, then lay the casts behind what they read."""
        graph = self._model.graph
        for node in self._network.nodes:
            self._rewrite(graph.node[node.index], node)
        self._restore_outputs()
        nodes = [*self._casts.pop("", ()), *self._casts_behind(item.name for item in graph.input)]
        for node in list(graph.node):
            nodes += [node, *self._casts_behind(node.output)]
        del graph.node[:]
        graph.node.extend(nodes)
        graph.initializer.extend(self._added)
        self._drop_unread()
        del graph.value_info[:]
        return self._model

    def _casts_behind(self, tensors: Iterable[str]) -> list[onnx.NodeProto]:
        return [cast for tensor in tensors for cast in self._casts.pop(tensor, ())]

    def _rewrite(self, proto: onnx.NodeProto, node: Node) -> None:
        half = node.index not in self._kept
        for slot, name in enumerate(node.inputs):
            if self._network.elem_types.get(name) == "float32":
                proto.input[slot] = self._as(name, half and slot not in _float32_slots(node))
        if half and node.op_type == "Cast":
            for attribute in proto.attribute:
                if attribute.name == "to" and attribute.i == CAST_TO_FLOAT:
                    attribute.i = onnx.TensorProto.FLOAT16
        if half and node.op_type == "Constant":
            _halve_attribute(proto)

    def _is_half(self, tensor: str) -> bool:
        """Whether the rewritten network makes this float32 tensor in float16."""
        producer = self._network.producer(tensor)
        return producer is not None and producer.index not in self._kept

    def _as(self, name: str, half: bool) -> str:
        """Name of a tensor in the wanted type, cast where it is made in the other."""
        if name in self._stored:
            return self._constant(name) if half else name
        if self._is_half(name) == half:
            return name
        key = (name, half)
        if key not in self._cast:
            self._cast[key] = self._new_name(f"{name}_{'half' if half else 'float'}")
            kind = onnx.TensorProto.FLOAT16 if half else onnx.TensorProto.FLOAT
            cast = helper.make_node(
                "Cast", [name], [self._cast[key]], self._new_name(f"{self._cast[key]}_cast"), to=kind
            )
            self._casts.setdefault(name, []).append(cast)
        return self._cast[key]

    def _constant(self, name: str) -> str:
        key = (name, True)
        if key not in self._cast:
            self._cast[key] = self._new_name(f"{name}_half")
            values = numpy_helper.to_array(self._stored[name]).astype(np.float16)
            self._added.append(numpy_helper.from_array(values, self._cast[key]))
        return self._cast[key]

    def _restore_outputs(self) -> None:
        """Give each graph output that is made in float16 its name and type back."""
        graph = self._model.graph
        for output in graph.output:
            if self._network.elem_types.get(output.name) != "float32" or not self._is_half(output.name):
                continue
            inner = self._new_name(f"{output.name}_half")
            for node in (*graph.node, *(cast for casts in self._casts.values() for cast in casts)):
                _rename(node.input, output.name, inner)
                _rename(node.output, output.name, inner)
            self._casts[inner] = self._casts.pop(output.name, [])
            name = self._new_name(f"{output.name}_cast")
            self._casts[inner].append(helper.make_node("Cast", [inner], [output.name], name, to=CAST_TO_FLOAT))

    def _drop_unread(self) -> None:
        graph = self._model.graph
        read = {name for node in graph.node for name in node.input} | {item.name for item in graph.output}
        read |= {name for node in self._network.nodes for name in node.captured}
        kept = [tensor for tensor in graph.initializer if tensor.name in read]
        dropped = {tensor.name for tensor in graph.initializer} - {tensor.name for tensor in kept}
        inputs = [item for item in graph.input if item.name not in dropped]  # old exporters list initialisers there too
        for field, items in ((graph.initializer, kept), (graph.input, inputs)):
            del field[:]
            field.extend(items)

    def _new_name(self, wanted: str) -> str:
        return fresh(wanted, self._taken)


def _rename(names: Any, old: str, new: str) -> None:
    for index, name in enumerate(names):
        if name == old:
            names[index] = new


def _halve_attribute(proto: onnx.NodeProto) -> None:
    """Turn a Constant node's float32 value into float16."""
    for attribute in list(proto.attribute):
        if attribute.name == "value":
            values = numpy_helper.to_array(attribute.t)
        elif attribute.name in ("value_float", "value_floats"):
            values = np.asarray(attribute.f if attribute.name == "value_float" else list(attribute.floats), np.float32)
        else:
            continue
        if values.dtype != np.float32:
            continue
        proto.attribute.remove(attribute)
        proto.attribute.append(helper.make_attribute("value", numpy_helper.from_array(values.astype(np.float16))))


def missing_opset(error: ModelError) -> str:
    """Say why a network stays in float32 throughout."""
    return f"stays in float32 where it is not INT8: opset {HALF_OPSET} is out of reach ({error.got})"
