"""What rules look at: a network, its constants, its float twin and the parts its nodes play; computed on demand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.follow import MOVES_DATA
from calib.core.graph import ConstantReader, Network, Node, analyse
from calib.core.graph.structure import all_graphs, read_nodes
from calib.core.lint.quantizers import Quantizer, numeric, read_quantizers
from calib.core.lint.strip import dequantizes, without_pairs
from calib.core.roles import COMPUTE, Roles, find_roles


class Subject:
    """A network under the lens.

    Args:
        model: external data loaded.
        network: its analysis.
        ranges: observed amax by tensor name, where known.
    """

    def __init__(self, model: onnx.ModelProto, network: Network, ranges: Mapping[str, float] | None = None) -> None:
        self.model = model
        self.network = network
        self.observed = dict(ranges or {})
        self.constants = ConstantReader(model, network)

    def nodes(self, *op_types: str) -> Iterator[Node]:
        """List the standard nodes of the main graph in network order; of some operators, or all."""
        for index in self.network.order:
            node = self.network.nodes[index]
            if not node.domain and (not op_types or node.op_type in op_types):
                yield node

    @cached_property
    def every_node(self) -> tuple[Node, ...]:
        """Nodes of the main graph and of every graph inside it, whatever their domain."""
        return tuple(node for graph in all_graphs(self.model.graph) for node in read_nodes(graph))

    def value(self, name: str) -> NDArray[Any] | None:
        """Read a numeric constant; None when it is none or cannot be folded."""
        value = self.constants.value(name) if name else None
        return value if value is not None and numeric(value) else None

    def numbers(self, name: str) -> tuple[float, ...] | None:
        """Read a small constant as numbers: sizes and scales, sound or not."""
        value = self.value(name)
        if value is None or value.dtype.kind not in "fiub" or value.size > 64:
            return None
        return tuple(float(item) for item in value.ravel())

    def integers(self, name: str) -> tuple[int, ...] | None:
        """Read a small constant as whole numbers: pads, axes; None where one is none."""
        found = self.numbers(name)
        if found is None or not all(item.is_integer() for item in found):
            return None
        return tuple(int(item) for item in found)

    def length(self, tensor: str, axis: int) -> int | None:
        """Answer the length of an axis where it is known."""
        shape = self.network.shapes.get(tensor)
        return shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None

    def is_constant(self, name: str) -> bool:
        """Tell whether a tensor is known from the file alone."""
        return name in self.network.constants

    @cached_property
    def activations(self) -> frozenset[str]:
        """Names of the float tensors that depend on the input."""
        return frozenset(item.name for item in self.network.activations)

    @cached_property
    def channel_axes(self) -> Mapping[str, int | None]:
        """Channel axis of every activation, None where it has none."""
        return {item.name: item.channel_axis for item in self.network.activations}

    @cached_property
    def quantizers(self) -> tuple[Quantizer, ...]:
        """Every QuantizeLinear and DequantizeLinear."""
        return read_quantizers(self.network, self.constants)

    @cached_property
    def int8(self) -> bool:
        """Whether some activation is quantized."""
        return any(not item.constant for item in self.quantizers)

    @cached_property
    def twin(self) -> Network:
        """The network without Q/DQ pairs on activations; the network itself where there are none."""
        return analyse(without_pairs(self.model, self.network)) if self.int8 else self.network

    @cached_property
    def roles(self) -> Roles:
        """The parts the nodes of :attr:`twin` play."""
        return find_roles(self.twin)

    @cached_property
    def _by_output(self) -> Mapping[str, Node]:
        return {node.outputs[0]: node for node in self.network.nodes if node.outputs}

    def original(self, index: int) -> Node | None:
        """Find the node of the network that a node of :attr:`twin` is."""
        return self._by_output.get(self.twin.nodes[index].outputs[0])

    def layers(self) -> Iterator[Node]:
        """List the layers that work on activations, in network order."""
        for node in self.nodes(*COMPUTE):
            if any(name in self.activations for name in node.outputs):
                yield node

    def from_dequantize(self, name: str) -> bool:
        """Tell whether a tensor is dequantized, perhaps moved or pooled by maximum since."""
        node = self.network.producer(name)
        for _ in range(len(self.network.nodes)):
            if node is None or dequantizes(node):
                return node is not None
            data = [item for item in node.inputs if item in self.activations or self._dequantized_constant(item)]
            if node.domain or node.op_type not in MOVES_DATA or not data:
                return False
            if len(data) > 1:
                return all(self.from_dequantize(item) for item in data)
            node = self.network.producer(data[0])
        return False

    def _dequantized_constant(self, name: str) -> bool:
        return self.is_constant(name) and dequantizes(self.network.producer(name))

    def quantized_constant(self, name: str) -> Quantizer | None:
        """Find the DequantizeLinear that makes a constant, through what only moves it."""
        node = self.network.producer(name)
        while node is not None and not dequantizes(node):
            if node.op_type not in MOVES_DATA or not node.inputs:
                return None
            node = self.network.producer(node.inputs[0])
        return next((item for item in self.quantizers if node is not None and item.node.index == node.index), None)

    def weight_input(self, node: Node) -> str:
        """Name the constant operand of a layer, empty where it has none."""
        return next((name for name in node.inputs[:2] if self.is_constant(name)), "")

    def data_input(self, node: Node) -> str:
        """Name the operand of a layer that depends on the input: the first one that is no constant."""
        return next((name for name in node.inputs[:2] if name and not self.is_constant(name)), "")

    def is_int8(self, node: Node) -> bool:
        """Tell whether both operands of a layer are dequantized, so that it runs in INT8."""
        operands = [name for name in node.inputs[:2] if name]
        return len(operands) == 2 and all(self._operand_is_int8(name) for name in operands)

    def _operand_is_int8(self, name: str) -> bool:
        return self.quantized_constant(name) is not None if self.is_constant(name) else self.from_dequantize(name)

    @cached_property
    def ranges(self) -> Mapping[str, float]:
        """amax by tensor: observed, or else what a Q/DQ pair on it says."""
        said = {item.node.input(0): item.amax for item in self.quantizers if item.quantizes and not item.constant}
        pairs = {name: amax for name, amax in said.items() if amax is not None and np.isfinite(amax)}
        return {**pairs, **self.observed}

    @cached_property
    def open(self) -> bool:
        """Whether some input leaves the length of an axis open, the batch's too."""
        return any(item.shape is None or None in item.shape for item in self.network.inputs)

    @cached_property
    def dynamic_size(self) -> bool:
        """Whether some input leaves the length of an axis other than the first open."""
        return any(None in item.shape[1:] for item in self.network.inputs if item.shape)


def ints(node: Node, key: str) -> tuple[int, ...] | None:
    """Read an attribute that is a list of integers."""
    value = node.attributes.get(key)
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        return None
    return tuple(int(item) for item in value)


def text(node: Node, key: str, default: str) -> str:
    """Read an attribute that is a text."""
    value = node.attributes.get(key, default)
    return value if isinstance(value, str) else default


def number(node: Node, key: str, default: float) -> float:
    """Read an attribute that is a number."""
    value = node.attributes.get(key, default)
    return float(value) if isinstance(value, int | float) else default
