"""The float network inside a Q/DQ network: the same nodes without the pairs, and every pair taken out, by tensor."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calib.core.graph.stored import StoredValues
from calib.stages.diagnose.quantizer import DEQUANTIZE, QUANTIZE, Quantizer


@dataclass(frozen=True)
class Twin:
    """A Q/DQ network taken apart.

    Attributes:
        model: the float twin.
        quantizers: the pairs, in network order.
        left: labels of Q/DQ nodes that could not be taken out.
        clamps: labels of the Clip nodes that stand for a pair's end at zero: quantizers that take a ReLU away leave
            its work to that.
    """

    model: onnx.ModelProto
    quantizers: tuple[Quantizer, ...]
    left: tuple[str, ...] = ()
    clamps: frozenset[str] = frozenset()


def has_pairs(model: onnx.ModelProto) -> bool:
    """Whether a model holds Q/DQ nodes."""
    return any(node.op_type in QUANTIZE | DEQUANTIZE for node in model.graph.node)


def make_twin(model: onnx.ModelProto) -> Twin:
    """Take the Q/DQ pairs out of a network; what they quantized keeps its name."""
    return _Stripper(model).strip()


class _Stripper:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.stored = StoredValues(model)
        self.makers = {name: node for node in model.graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.instead: dict[str, str] = {}
        self.gone: set[int] = set()
        self.left: list[str] = []
        self.clamps: dict[str, onnx.NodeProto] = {}
        self.opset = max((item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}), default=1)

    def strip(self) -> Twin:
        quantizers = tuple(self._pairs())
        graph = self.model.graph
        kept = [node for place, node in enumerate(graph.node) if place not in self.gone]
        for node in kept:
            for slot, name in enumerate(node.input):
                node.input[slot] = self._resolve(name)
        kept += [
            helper.make_node("Identity", [self._resolve(item.name)], [item.name], name=f"{item.name}/float")
            for item in graph.output
            if item.name in self.instead
        ]
        nodes = [onnx.NodeProto() for _ in kept]
        for copy, node in zip(nodes, kept, strict=True):
            copy.CopyFrom(node)
        del graph.node[:]
        graph.node.extend(nodes)
        del graph.value_info[:]
        self._place_clamps()
        return Twin(self.model, quantizers, tuple(self.left), frozenset(node.name for node in self.clamps.values()))

    def _place_clamps(self) -> None:
        """Put every clamp right behind what makes its tensor."""
        graph = self.model.graph
        waiting = {node.input[0]: node for node in self.clamps.values()}
        nodes = [waiting.pop(item.name) for item in graph.input if item.name in waiting]
        for node in graph.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            nodes.append(copy)
            nodes += [waiting.pop(name) for name in node.output if name in waiting]
        del graph.node[:]
        graph.node.extend(nodes)

    def _clamped(self, name: str, scale: NDArray[np.float64], zero: NDArray[np.float64], low: int) -> str:
        """The tensor cut off at zero, where the pair's range begins there."""
        if scale.size > 1 or zero.flat[0] != low:
            return name
        source = self._resolve(name)
        if source not in self.clamps:
            label, made = f"{source}/clamp", f"{source}/clamped"
            if self.opset >= 11:
                zeros = numpy_helper.from_array(np.zeros((), np.float32), f"{source}/zero")
                self.model.graph.initializer.append(zeros)
                self.clamps[source] = helper.make_node("Clip", [source, zeros.name], [made], name=label)
            else:
                self.clamps[source] = helper.make_node("Clip", [source], [made], name=label, min=0.0)
        return f"{source}/clamped"

    def _resolve(self, name: str) -> str:
        while name in self.instead:
            name = self.instead[name]
        return name

    def _pairs(self) -> Iterator[Quantizer]:
        for place, node in enumerate(self.model.graph.node):
            if node.op_type not in DEQUANTIZE:
                continue
            source = self.makers.get(node.input[0])
            stored = node.input[0] in self.stored.constants and (source is None or source.op_type not in QUANTIZE)
            if stored:
                found = self._of_integers(node)
            elif source is not None and source.op_type in QUANTIZE:
                found = self._of_pair(source, node)
            else:
                found = None
            if found is None:
                self.left.append(node.name or node.output[0])
                continue
            self.gone.add(place)
            self.gone.update(self._dead(source) if source is not None and not stored else ())
            yield found

    def _dead(self, source: onnx.NodeProto) -> Iterator[int]:
        """The QuantizeLinear goes with its pair; other readers of its integers would keep it."""
        others = [node for node in self.readers.get(source.output[0], ()) if node.op_type not in DEQUANTIZE]
        if not others:
            yield next(
                place for place, node in enumerate(self.model.graph.node) if node.output[:1] == source.output[:1]
            )

    def _of_pair(self, quantize: onnx.NodeProto, node: onnx.NodeProto) -> Quantizer | None:
        said = self._scale(node, None)
        if said is None:
            return None
        constant = quantize.input[0] in self.stored.constants
        value = self.stored.value(quantize.input[0]) if constant else None
        source = quantize.input[0]
        self.instead[node.output[0]] = source if constant else self._clamped(source, said[0], said[1], said[2])
        made = self._made(quantize.input[0], quantize, node, said, value, exact=True)
        into = self._scale(quantize, None)
        same = into is None or all(
            np.array_equal(*pair, equal_nan=True) for pair in zip(into[:2], said[:2], strict=True)
        )
        return made if same or into is None else replace(made, into=into[:2])

    def _of_integers(self, node: onnx.NodeProto) -> Quantizer | None:
        value = self.stored.value(node.input[0])
        said = None if value is None else self._scale(node, value.dtype)
        if value is None or said is None:
            return None
        scale, zero, _, _, axis = said
        shape = [1] * value.ndim
        if scale.size > 1:
            shape[axis % value.ndim] = scale.size
        ready = (value.astype(np.float64) - zero.reshape(shape if zero.size > 1 else [1] * value.ndim)) * scale.reshape(
            shape if scale.size > 1 else [1] * value.ndim
        )
        name = f"{self.stored.root(node.input[0])}/dequantized"
        self.instead[node.output[0]] = name
        self.model.graph.initializer.append(numpy_helper.from_array(ready.astype(np.float32), name))
        return self._made(name, node, node, said, ready.astype(np.float32), exact=False)

    def _made(
        self,
        tensor: str,
        first: onnx.NodeProto,
        node: onnx.NodeProto,
        said: tuple[NDArray[np.float64], NDArray[np.float64], int, int, int],
        constant: NDArray[Any] | None,
        *,
        exact: bool,
    ) -> Quantizer:
        scale, zero, low, high, axis = said
        reading = self.readers.get(node.output[0], ())
        readers, kinds = tuple(item.name or item.output[0] for item in reading), tuple(item.op_type for item in reading)
        label = first.name or f"{first.op_type}({first.output[0]})"
        return Quantizer(
            self._resolve(tensor), label, node.output[0], scale, zero, low, high, axis, constant, exact, readers, kinds
        )

    def _scale(
        self, node: onnx.NodeProto, dtype: np.dtype[Any] | None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64], int, int, int] | None:
        scale = self.stored.value(node.input[1])
        zero = self.stored.value(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        if scale is None or not scale.size or scale.dtype.kind != "f" or scale.ndim > 1:
            return None
        if zero is not None and (zero.dtype.kind not in "iu" or zero.size not in {1, scale.size}):
            return None
        kind = zero.dtype if zero is not None else dtype or self._default(node)
        limits = np.iinfo(kind)
        offsets = np.zeros(scale.shape)
        if zero is not None:
            offsets = offsets + zero.reshape(-1 if scale.ndim and zero.size > 1 else ()).astype(np.float64)
        axis = next((item.i for item in node.attribute if item.name == "axis"), 1)
        return scale.astype(np.float64), offsets, int(limits.min), int(limits.max), int(axis)

    @staticmethod
    def _default(node: onnx.NodeProto) -> np.dtype[Any]:
        return np.dtype(np.int8 if node.op_type.startswith("TRT_INT8") else np.uint8)
