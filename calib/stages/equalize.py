"""Cross-layer equalization: give the channels between two convolutions the same range, by their weights alone.

Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction", ICCV 2019, section 4.1:
for layers ``W1, b1`` and ``W2`` with a positively homogeneous activation between them,
``f(W2 act(W1 x + b1)) = f(W2 S act(S^-1 W1 x + S^-1 b1))`` with ``s_i = sqrt(r1_i / r2_i)``, where ``r1_i`` is the
range of output channel i of W1 and ``r2_i`` that of input channel i of W2. Repeated until it settles, so that
chains (expansion, depthwise, projection) equalize as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calib.core.graph import Network, Node, analyse
from calib.core.graph.stored import refill
from calib.core.roles import is_standard, pad_keeps_range
from calib.errors import ModelError

HOMOGENEOUS = frozenset({"Relu", "LeakyRelu", "PRelu", "Identity", "Dropout", "MaxPool", "AveragePool", "Pad"})
"""Operators with ``f(s x) = s f(x)`` for a positive s per channel."""

SETTLED = 1e-3
"""Largest change of log2(s) in a sweep that counts as settled."""


@dataclass(frozen=True)
class EqualizedPair:
    """Two convolutions whose shared channels were equalized.

    Attributes:
        first: label of the convolution that makes the channels.
        second: label of the one that reads them.
        tensors: the tensors between them, in order.
        factors: float64 ``[C]``: channel i of each of these tensors is ``factors[i]`` times what it was.
    """

    first: str
    second: str
    tensors: tuple[str, ...]
    factors: NDArray[np.float64]


@dataclass(frozen=True)
class Equalization:
    """An equalized model.

    Attributes:
        model: computes what the original does; the original is unchanged.
        pairs: what was equalized, in network order.
        skipped: label of every other convolution that feeds a convolution-like path, and what stands in the way.
    """

    model: onnx.ModelProto
    pairs: tuple[EqualizedPair, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def factors(self) -> dict[str, NDArray[np.float64]]:
        """Factor of every rescaled tensor's channels: multiply their statistics by it."""
        return {name: pair.factors for pair in self.pairs for name in pair.tensors}


@dataclass(frozen=True)
class _Link:
    first: Node
    second: Node
    tensors: tuple[str, ...]


def equalize(
    model: onnx.ModelProto, *, sweeps: int = 30, limit: float = 256.0, power_of_two: bool = True
) -> Equalization:
    """Fold cross-layer equalization into the weights of a float model.

    Args:
        model: external data loaded; not changed.
        sweeps: passes over all pairs at most.
        limit: a channel is scaled by at most this, either way; a nearly dead channel would else be blown up until
            its bias alone fills the range of the tensor.
        power_of_two: round factors to powers of two. The network then computes the same bits, and statistics
            rescale without rounding; ranges come out equal within a factor of 2. False takes the paper's factors.

    Raises:
        ModelError: a weight holds NaN or infinity.
    """
    network = analyse(model)
    values = _weights(model, network)
    links, skipped = _links(network, values)
    logs = _settled(links, values, sweeps, float(np.log2(limit)))
    if power_of_two:
        logs = [np.rint(log) for log in logs]
    scales = [np.exp2(log) for log in logs]
    for link, scale in zip(links, scales, strict=True):
        _apply(link, scale, values)
    pairs = tuple(
        EqualizedPair(link.first.label, link.second.label, link.tensors, 1.0 / scale)
        for link, scale in zip(links, scales, strict=True)
    )
    return Equalization(_rewritten(model, links, values), pairs, tuple(skipped))


def _weights(model: onnx.ModelProto, network: Network) -> dict[str, NDArray[np.float64]]:
    """Read weights and biases of convolutions that only one node reads, as float64."""
    reads = Counter(name for node in network.nodes for name in (*node.inputs, *node.captured))
    wanted = {name for node in network.nodes if is_standard(node, "Conv") for name in node.inputs[1:3]}
    found: dict[str, NDArray[np.float64]] = {}
    for tensor in model.graph.initializer:
        if tensor.name in wanted and reads[tensor.name] == 1:
            value = np.asarray(numpy_helper.to_array(tensor), np.float64)
            if not np.isfinite(value).all():
                raise ModelError(
                    f"weight {tensor.name!r}",
                    expected="finite values",
                    got="NaN or infinity",
                    remedy="export the network again from a sound checkpoint",
                )
            found[tensor.name] = value
    return found


def _links(network: Network, values: Mapping[str, NDArray[np.float64]]) -> tuple[list[_Link], list[tuple[str, str]]]:
    links: list[_Link] = []
    skipped: list[tuple[str, str]] = []
    for index in network.order:
        node = network.nodes[index]
        if is_standard(node, "Conv"):
            found = _follow(node, network)
            reason = found if isinstance(found, str) else _foreign_weights(found, values)
            if isinstance(found, _Link) and not reason:
                links.append(found)
            else:
                skipped.append((node.label, reason))
    return links, skipped


def _follow(first: Node, network: Network) -> _Link | str:
    """Walk from a convolution's output to the next convolution, or say what stands in the way."""
    tensors = [first.outputs[0]]
    while True:
        name = tensors[-1]
        uses = network.consumers.get(name, ())
        if name in network.output_names:
            return "a graph output"
        if len(uses) != 1 or uses[0].slot != 0:
            return f"{len(uses)} consumers" if len(uses) != 1 else "an operand that is no data input"
        node = network.nodes[uses[0].node]
        if is_standard(node, "Conv"):
            return _Link(first, node, tuple(tensors))
        if not _passes(node, network):
            return node.op_type
        tensors.append(node.outputs[0])


def _passes(node: Node, network: Network) -> bool:
    if not is_standard(node, *HOMOGENEOUS) or any(node.outputs[1:]):
        return False
    if node.op_type == "PRelu":
        return node.input(1) in network.constants
    if node.op_type == "Dropout":
        return not node.input(2) or network.values.get(node.input(2)) == (0.0,)
    return node.op_type != "Pad" or pad_keeps_range(node, network)


def _foreign_weights(link: _Link, values: Mapping[str, NDArray[np.float64]]) -> str:
    for node in (link.first, link.second):
        if node.input(1) not in values:
            return f"the weight of {node.label} is shared or computed"
    bias = link.first.input(2)
    return f"the bias of {link.first.label} is shared or computed" if bias and bias not in values else ""


def _settled(
    links: list[_Link], values: Mapping[str, NDArray[np.float64]], sweeps: int, bound: float
) -> list[NDArray[np.float64]]:
    """Iterate the paper's formula over all pairs on copies of the weights; log2 of the total factors."""
    work = dict(values)
    totals = [np.zeros(values[link.first.inputs[1]].shape[0]) for link in links]
    for _ in range(sweeps):
        largest = 0.0
        for link, total in zip(links, totals, strict=True):
            step = np.clip(total + _step(link, work), -bound, bound) - total
            np.add(total, step, out=total)
            _apply(link, np.exp2(step), work)
            largest = max(largest, float(np.abs(step).max(initial=0.0)))
        if largest < SETTLED:
            break
    return totals


def _step(link: _Link, values: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """Compute ``log2 sqrt(r1 / r2)``, 0 where a range is 0."""
    first, second = values[link.first.inputs[1]], values[link.second.inputs[1]]
    made = _largest(first)
    rows = _per_input(second, link.second)
    read = np.zeros_like(made)
    np.maximum.at(read, rows, _largest_pairs(second))
    alive = (made > 0) & (read > 0)
    ratio = np.divide(made, read, out=np.ones_like(made), where=alive)
    step: NDArray[np.float64] = 0.5 * np.log2(ratio)
    return step


def _largest(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(np.abs(weight).reshape(weight.shape[0], -1).max(1, initial=0.0))


def _largest_pairs(weight: NDArray[np.float64]) -> NDArray[np.float64]:
    """Largest magnitude for every (output, input within group)."""
    return np.asarray(np.abs(weight).reshape(*weight.shape[:2], -1).max(2, initial=0.0))


def _per_input(weight: NDArray[np.float64], node: Node) -> NDArray[np.int64]:
    """Index of the input channel that ``weight[o, j]`` reads: int64 ``[Cout, Cin/group]``."""
    group = node.attributes.get("group", 1)
    outputs, inputs = weight.shape[:2]
    per_group = outputs // int(group) if isinstance(group, int) and group else outputs
    starts = np.arange(outputs) // per_group * inputs
    return np.asarray(starts[:, None] + np.arange(inputs)[None, :])


def _apply(link: _Link, scale: NDArray[np.float64], values: dict[str, NDArray[np.float64]]) -> None:
    """Divide the first layer's output channels by the scale, multiply the second's input channels by it."""
    first, second, bias = link.first.inputs[1], link.second.inputs[1], link.first.input(2)
    values[first] = values[first] / _column(scale, values[first].ndim)
    if bias:
        values[bias] = values[bias] / scale
    weight = values[second]
    factor = scale[_per_input(weight, link.second)]
    values[second] = weight * factor.reshape(*factor.shape, *(1,) * (weight.ndim - 2))


def _column(scale: NDArray[np.float64], rank: int) -> NDArray[np.float64]:
    return scale.reshape(-1, *(1,) * (rank - 1))


def _rewritten(
    model: onnx.ModelProto, links: list[_Link], values: Mapping[str, NDArray[np.float64]]
) -> onnx.ModelProto:
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    changed = set(_changed(links))
    for tensor in answer.graph.initializer:
        if tensor.name in changed:
            before: NDArray[Any] = np.asarray(numpy_helper.to_array(tensor))
            refill(tensor, values[tensor.name].astype(before.dtype))
    return answer


def _changed(links: list[_Link]) -> Iterator[str]:
    for link in links:
        yield from filter(None, (*link.first.inputs[1:3], link.second.inputs[1]))
