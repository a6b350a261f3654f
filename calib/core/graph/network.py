"""The values :func:`calib.core.graph.analyse` answers with: what a network's tensors are, without their data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

FLOAT_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})
"""Element types of activations that can be calibrated."""

DerivationKind = Literal["same", "clip", "concat", "negate", "abs"]
UncoveredReason = Literal[
    "integer", "bool", "string", "low precision", "not a tensor", "constant", "shape arithmetic", "inside subgraph",
    "inside function", "empty name",
]  # fmt: skip
Attribute = int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]
Shape = tuple[int | None, ...]


@dataclass(frozen=True)
class GraphTensor:
    """A graph input or output as the model declares it.

    Attributes:
        name: tensor name.
        elem_type: ``float32``, ``uint8``, …; None when the model does not say.
        shape: a length per axis, None where it is dynamic; None when even the rank is unknown.
    """

    name: str
    elem_type: str | None
    shape: Shape | None


@dataclass(frozen=True)
class Node:
    """A node of the main graph.

    Attributes:
        index: position in ``model.graph.node``.
        name: as in the file, possibly empty.
        op_type: operator.
        domain: ``""`` for the standard operators (``ai.onnx`` is written as ``""``).
        inputs: names, ``""`` for an omitted input.
        outputs: names, ``""`` for an omitted output.
        captured: outer tensors that its subgraphs read.
        attributes: numbers, strings and lists of them; tensors and subgraphs are left out.
    """

    index: int
    name: str
    op_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    captured: tuple[str, ...] = ()
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Name the node for people and reports; unnamed nodes go by operator and first output."""
        return self.name or f"{self.op_type}({next(filter(None, self.outputs), f'#{self.index}')})"

    def input(self, slot: int) -> str:
        """Name the input at ``slot``, ``""`` when it is omitted."""
        return self.inputs[slot] if slot < len(self.inputs) else ""


@dataclass(frozen=True)
class Use:
    """A place where a tensor is read; ``slot`` is -1 when a subgraph of the node captures it."""

    node: int
    slot: int


@dataclass(frozen=True)
class Derivation:
    """How an activation's statistics follow exactly, element for element, from those of others.

    Attributes:
        kind: ``same`` elements in another arrangement, ``clip`` to ``[low, high]``, ``concat`` of all
            elements of the sources, ``negate``, ``abs``.
        sources: activations it follows from, in input order; one that occurs twice counts twice.
        low: lower bound of ``clip``, None for none.
        high: upper bound of ``clip``, None for none.
        join_channels: for ``concat`` only: True when the sources' channels are laid one after the other,
            False when their channels are merged one with the other. No matter without ``channel_axis``.
    """

    kind: DerivationKind
    sources: tuple[str, ...]
    low: float | None = None
    high: float | None = None
    join_channels: bool = False


@dataclass(frozen=True)
class Activation:
    """A float tensor that depends on the network's input.

    Attributes:
        name: tensor name.
        producer: index of the node that makes it, None for a graph input.
        op_type: operator of that node, ``Input`` for a graph input.
        elem_type: one of :data:`FLOAT_TYPES`; None where only the runtime can tell (behind a custom operator).
        shape: a length per axis, None where dynamic; None when the rank is unknown.
        channel_axis: axis of the channels, counted from 0, or None where the tensor has none.
        derivation: how its statistics follow from others', or None: it must be observed.
    """

    name: str
    producer: int | None
    op_type: str
    elem_type: str | None
    shape: Shape | None
    channel_axis: int | None
    derivation: Derivation | None = None


@dataclass(frozen=True)
class Uncovered:
    """A tensor that gets no range, and why."""

    name: str
    reason: UncoveredReason
    op_type: str


@dataclass(frozen=True)
class Network:
    """What a network's tensors are.

    Attributes:
        inputs: true graph inputs; initialisers that are listed as inputs are constants.
        outputs: graph outputs.
        activations: float tensors in network order: graph inputs, then node outputs in topological order.
        constants: tensors known from initialisers and Constant nodes alone, integers included.
        not_covered: tensors that get no range, with the reason.
        nodes: nodes of the main graph in file order (``nodes[i].index == i``).
        order: node indices in topological order.
        producers: tensor name to the index of the node that makes it.
        consumers: tensor name to every place it is read, in file order.
        elem_types: element type of every tensor where it is known.
        shapes: shape of every tensor where its rank is known.
        opsets: operator set version by domain.
        values: elements, in row-major order, of stored numeric constants of at most 16 elements.
        names: every node, tensor and initialiser name in the model, subgraphs and functions included.
    """

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    activations: tuple[Activation, ...]
    constants: frozenset[str]
    not_covered: tuple[Uncovered, ...]
    nodes: tuple[Node, ...]
    order: tuple[int, ...]
    producers: Mapping[str, int]
    consumers: Mapping[str, tuple[Use, ...]]
    elem_types: Mapping[str, str]
    shapes: Mapping[str, Shape]
    opsets: Mapping[str, int]
    values: Mapping[str, tuple[float, ...]]
    names: frozenset[str]

    @property
    def observed(self) -> tuple[Activation, ...]:
        """Activations that must be exposed and observed; the others' statistics follow from theirs."""
        return tuple(activation for activation in self.activations if activation.derivation is None)

    @property
    def opset(self) -> int:
        """Version of the standard operator set."""
        return self.opsets.get("", 1)

    @property
    def output_names(self) -> frozenset[str]:
        """Names of the graph outputs."""
        return frozenset(item.name for item in self.outputs)

    def has_nodes_of(self, other: Network) -> bool:
        """Whether two networks have the same nodes, names and all."""
        return [(node.op_type, node.inputs, node.outputs) for node in self.nodes] == [
            (node.op_type, node.inputs, node.outputs) for node in other.nodes
        ]

    def producer(self, tensor: str) -> Node | None:
        """Find the node that makes a tensor; None for graph inputs and initialisers."""
        index = self.producers.get(tensor)
        return None if index is None else self.nodes[index]
