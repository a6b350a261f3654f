"""Fold batch normalisation into the layers before it, so that the weights that are quantized are the ones used.

Conv, ConvTranspose (grouped too), Gemm, and MatMul on matrices, which becomes a Gemm, for it has no bias to take the
shift in. The protobuf is edited in place of a copy, as in :mod:`calib.stages.qdq`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calib.core.graph import ConstantReader, Network, Node, analyse
from calib.core.graph.naming import fresh
from calib.core.graph.stored import refill
from calib.core.graph.structure import all_graphs
from calib.core.normfold import (
    EPSILON,
    Affine,
    Floats,
    added_constants,
    affine_of,
    norms_by_layer,
    per_channel,
    scale_outputs,
)

PRECISION: Mapping[str, float] = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
"""Distance from 1 to the next number, by float type."""


@dataclass(frozen=True)
class FoldedNorm:
    """A batch normalisation that was folded.

    Attributes:
        layer: label of the layer that took it in, before.
        label: label of that layer afterwards: an unnamed node goes by its output, which is another now.
        norm: label of the BatchNormalization.
        gone: tensors between the two, which are no more.
    """

    layer: str
    label: str
    norm: str
    gone: tuple[str, ...]


@dataclass(frozen=True)
class Folding:
    """A model without the batch normalisations that its layers can take in.

    Attributes:
        model: computes what the original does, up to the rounding of its float type; the original itself where nothing
            was folded, and else unchanged.
        folded: what was, in network order.
    """

    model: onnx.ModelProto
    folded: tuple[FoldedNorm, ...] = ()

    def renamed(self, labels: Collection[str]) -> frozenset[str]:
        """Translate labels of nodes to those of this model."""
        known = {item.layer: item.label for item in self.folded}
        return frozenset(known.get(item, item) for item in labels)


@dataclass(frozen=True)
class _Fold:
    layer: Node
    chain: tuple[Node, ...]
    weight: NDArray[Any]
    bias: NDArray[Any]

    @property
    def between(self) -> tuple[str, ...]:
        """Tensors that the fold does away with."""
        return (self.layer.outputs[0], *(node.outputs[0] for node in self.chain[:-1]))


def fold_norms(model: onnx.ModelProto, keep: Collection[str] = ()) -> Folding:
    """Fold each batch normalisation that alone reads a layer's output into the layer's weight and bias.

    Left as they are: normalisations in training form or with parameters that are not stored, behind layers that others
    read too, behind layers whose weight is computed from activations, and where a folded weight does not fit its type.

    Args:
        model: a float model, external data loaded; not changed.
        keep: weights that must stay as they are, because they have ranges of their own.

    Returns:
        the folded model; names of other nodes and tensors, and the order of nodes, are as before. A layer makes the
        tensor that its normalisation made.
    """
    network = analyse(model)
    found = norms_by_layer(network)
    if not found:
        return Folding(model)
    reader = ConstantReader(model, network)
    layers = ((network.nodes[index], chain) for index, chain in found.items())
    folds = [
        fold
        for layer, chain in layers
        if layer.input(1) not in keep and (fold := _fold(layer, chain, network, reader)) is not None
    ]
    return _Editor(model, network).apply(folds) if folds else Folding(model)


def _fold(layer: Node, chain: tuple[Node, ...], network: Network, reader: ConstantReader) -> _Fold | None:
    weight, affine = _floats(layer.input(1), reader), _affine(chain[-1], reader)
    if weight is None or affine is None:
        return None
    rank = _rank(layer, weight, network)
    before = None if rank is None else _bias(layer, chain, affine.factor.size, rank, network, reader)
    return None if before is None else _rounded(layer, chain, weight, affine, before)


def _floats(name: str, reader: ConstantReader) -> NDArray[Any] | None:
    value = reader.value(name)
    return value if value is not None and value.dtype.name in PRECISION else None


def _affine(norm: Node, reader: ConstantReader) -> Affine | None:
    scale, bias, mean, variance = (_floats(norm.input(slot), reader) for slot in range(1, 5))
    epsilon = norm.attributes.get("epsilon", EPSILON)
    if scale is None or bias is None or mean is None or variance is None or not isinstance(epsilon, int | float):
        return None
    return affine_of(scale, bias, mean, variance, float(epsilon))


def _rank(layer: Node, weight: NDArray[Any], network: Network) -> int | None:
    """Rank of a layer's output where its second axis is that of the weight's output channels, else None."""
    if layer.op_type in {"Conv", "ConvTranspose"}:
        return weight.ndim
    if layer.op_type == "Gemm":
        return 2
    shape = network.shapes.get(layer.input(0))
    return 2 if shape is not None and len(shape) == weight.ndim == 2 else None


def _bias(
    layer: Node, chain: tuple[Node, ...], channels: int, rank: int, network: Network, reader: ConstantReader
) -> Floats | None:
    """Sum up what is added to a layer's products before the normalisation, one number a channel."""
    total = np.zeros(channels)
    own = layer.input(2)
    gemm = layer.op_type == "Gemm"
    factor = layer.attributes.get("beta", 1.0) if gemm else 1.0
    terms = [(own, float(factor) if isinstance(factor, int | float) else 1.0)] if own else []
    for place, (name, sign) in enumerate((*terms, *added_constants(chain, network))):
        value = _floats(name, reader)
        if value is None:
            return None
        if own and not place and not gemm:
            value = value.reshape(-1, *(1,) * (rank - 2))  # a convolution's bias is [C], not right-aligned
        each = per_channel(value, channels, rank)
        if each is None:
            return None
        total += sign * each
    return total


def _rounded(
    layer: Node, chain: tuple[Node, ...], weight: NDArray[Any], affine: Affine, before: Floats
) -> _Fold | None:
    """Compute the folded weight and bias in float64 and round them once; None where they leave the type's range."""
    group = layer.attributes.get("group", 1)
    transposed = bool(layer.attributes.get("transB", 0))
    wide = scale_outputs(
        layer.op_type, weight, affine.factor, group=group if isinstance(group, int) else 1, transposed=transposed
    )
    if wide is None:
        return None
    bias = affine.factor * before + affine.shift
    with np.errstate(all="ignore"):
        found = _Fold(layer, chain, wide.astype(weight.dtype), bias.astype(weight.dtype))
    fits = _fits(found.weight, wide) and bool(np.isfinite(found.bias.astype(np.float64)).all())
    return found if fits else None


def _fits(rounded: NDArray[Any], wide: Floats) -> bool:
    """Whether a weight kept its type's precision: neither beyond its largest number nor among its smallest."""
    with np.errstate(all="ignore"):
        error = np.abs(rounded.astype(np.float64) - wide).max(initial=0.0)
    return bool(error <= PRECISION[rounded.dtype.name] * np.abs(wide).max(initial=0.0))


class _Editor:
    """Carries folds out on a copy of a model."""

    def __init__(self, model: onnx.ModelProto, network: Network) -> None:
        self._network = network
        self._taken = set(network.names)
        self._replaced: set[str] = set()
        self._model = onnx.ModelProto()
        self._model.CopyFrom(model)
        self._stored = {tensor.name: tensor for tensor in self._model.graph.initializer}

    def apply(self, folds: list[_Fold]) -> Folding:
        """Fold all, and drop what nothing reads any more."""
        graph, nodes = self._model.graph, self._network.nodes
        folded = tuple(
            FoldedNorm(fold.layer.label, self._rewire(fold), fold.chain[-1].label, fold.between) for fold in folds
        )
        removed = {node.index for fold in folds for node in fold.chain}
        gone = {name for item in folded for name in item.gone}
        for index in sorted(removed, reverse=True):
            self._replaced.update(name for name in nodes[index].inputs if name in self._network.constants)
            del graph.node[index]
        self._prune()
        _drop(graph.value_info, lambda item: item.name in gone)
        _drop(graph.quantization_annotation, lambda item: item.tensor_name in gone)
        return Folding(self._model, folded)

    def _rewire(self, fold: _Fold) -> str:
        """Give a layer its new weight and bias, and the normalisation's output; answer its label."""
        layer, node = fold.layer, self._model.graph.node[fold.layer.index]
        operands = [
            node.input[0],
            self._store(layer.input(1), fold.weight),
            self._store(layer.input(2), fold.bias, layer),
        ]
        del node.input[:]
        node.input.extend(operands)
        node.output[0] = fold.chain[-1].outputs[0]
        if node.op_type == "MatMul":
            node.op_type = "Gemm"
        _drop(node.attribute, lambda item: item.name == "beta")
        return node.name or f"{node.op_type}({node.output[0]})"

    def _store(self, name: str, value: NDArray[Any], layer: Node | None = None) -> str:
        """Store a constant in place of one that nothing else reads, or under a new name beside it or its layer."""
        if self._is_own(name) and list(self._stored[name].dims) == list(value.shape):
            refill(self._stored[name], value)
            return name
        self._replaced.update({name} if name else ())
        found = fresh(f"{name}_folded" if name or layer is None else f"{layer.outputs[0]}_bias", self._taken)
        self._model.graph.initializer.append(numpy_helper.from_array(value, found))
        return found

    def _is_own(self, name: str) -> bool:
        alone = len(self._network.consumers.get(name, ())) == 1
        return name in self._stored and alone and name not in self._network.output_names

    def _prune(self) -> None:
        """Drop the constants that only what was folded read: stored ones, and the nodes that made them."""
        graph, suspects = self._model.graph, self._replaced
        while True:
            read = {name for inner in all_graphs(graph) for node in inner.node for name in node.input}
            read |= {item.name for inner in all_graphs(graph) for item in inner.output}
            idle = [
                index for index, node in enumerate(graph.node)
                if suspects.intersection(node.output) and not read.intersection(node.output)
            ]  # fmt: skip
            if not idle:
                break
            for index in reversed(idle):
                suspects.update(graph.node[index].input)
                del graph.node[index]
        unread = suspects - read - {item.name for item in self._network.inputs}
        _drop(graph.initializer, lambda item: item.name in unread)
        _drop(graph.input, lambda item: item.name in unread)


def _drop(items: Any, unwanted: Callable[[Any], bool]) -> None:
    """Delete the unwanted messages of a repeated field; the others stay where they are in memory."""
    for index in reversed([index for index, item in enumerate(items) if unwanted(item)]):
        del items[index]
