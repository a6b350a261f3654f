"""Batch normalisation behind a layer: which one belongs to which, and the weights that make it superfluous.

``gamma * (W x + b - mean) / sqrt(var + eps) + beta`` is ``(f W) x + (f (b - mean) + beta)`` with
``f = gamma / sqrt(var + eps)`` a channel. TensorRT folds it so when it builds a float network; weights that are
quantized before can no longer take the factor in.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import Network, Node
from calib.core.roles import COMPUTE, is_standard

EPSILON = 1e-5
"""Default of the ONNX operator and of PyTorch."""
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """What a normalisation does to each channel: ``factor * x + shift``.

    Attributes:
        factor: float64 ``[C]``, finite.
        shift: float64 ``[C]``, finite.
    """

    factor: Floats
    shift: Floats


def affine_of(
    scale: NDArray[Any], bias: NDArray[Any], mean: NDArray[Any], variance: NDArray[Any], epsilon: float
) -> Affine | None:
    """Compute what a batch normalisation does, in float64.

    Args:
        scale: gamma, ``[C]``, as ``bias`` (beta), ``mean`` and ``variance``.
        bias: beta.
        mean: running mean.
        variance: running variance.
        epsilon: added to the variance.

    Returns:
        factor and shift; None where lengths differ or a result is not finite.
    """
    values = [np.asarray(item, np.float64).ravel() for item in (scale, bias, mean, variance)]
    if len({item.size for item in values}) != 1:
        return None
    with np.errstate(all="ignore"):
        factor = values[0] / np.sqrt(values[3] + epsilon)
        shift = values[1] - values[2] * factor
    return Affine(factor, shift) if np.isfinite(factor).all() and np.isfinite(shift).all() else None


def scale_outputs(
    op_type: str, weight: NDArray[Any], factor: Floats, *, group: int = 1, transposed: bool = False
) -> Floats | None:
    """Multiply each output channel of a layer's weight by a factor.

    Args:
        op_type: Conv ``[Cout, Cin/group, …]``, ConvTranspose ``[Cin, Cout/group, …]``, Gemm or MatMul ``[K, N]``.
        weight: of the layer.
        factor: one an output channel, ``[Cout]``.
        group: of a ConvTranspose: its output channels are counted group by group, each with its own share of axis 0.
        transposed: whether a Gemm reads its weight as ``[N, K]``.

    Returns:
        float64, shape of ``weight``; None where the channels do not fit.
    """
    value = np.asarray(weight, np.float64)
    if op_type == "ConvTranspose":
        return _scale_transposed(value, factor, group)
    axis = 0 if op_type == "Conv" or (op_type == "Gemm" and transposed) else value.ndim - 1
    if value.ndim < 2 or value.shape[axis] != factor.size:
        return None
    return np.asarray(value * factor.reshape([-1 if item == axis else 1 for item in range(value.ndim)]))


def _scale_transposed(value: Floats, factor: Floats, group: int) -> Floats | None:
    if value.ndim < 2 or group < 1 or value.shape[0] % group or value.shape[1] * group != factor.size:
        return None
    split = value.reshape(group, value.shape[0] // group, *value.shape[1:])
    each = factor.reshape(group, 1, value.shape[1], *(1,) * (value.ndim - 2))
    return np.asarray((split * each).reshape(value.shape))


def trains(node: Node) -> bool:
    """Tell whether a BatchNormalization is in its training form: by its flag, or by outputs that only it has."""
    return bool(node.attributes.get("training_mode", 0)) or any(node.outputs[1:])


def is_inference(node: Node) -> bool:
    """Tell whether a BatchNormalization normalises by stored statistics, a pair of them a channel.

    Before opset 14 its extra outputs say that it trains, before opset 7 ``is_test``; ``spatial=0`` (before opset 9) has
    statistics for every position.
    """
    said = node.attributes
    return not trains(node) and said.get("spatial", 1) != 0


def norm_chain(layer: Node, network: Network) -> tuple[Node, ...]:
    """Follow a layer's output to the batch normalisation that alone reads it.

    Between the two may stand Identity, Dropout and additions of a constant; each tensor on the way has one reader and
    is no graph output.

    Returns:
        the nodes behind the layer in order, the BatchNormalization last; empty where there is none.
    """
    if not is_standard(layer, *COMPUTE) or not layer.outputs:
        return ()
    found: list[Node] = []
    name = layer.outputs[0]
    while (node := _only_reader(name, network)) is not None:
        found.append(node)
        if node.op_type == "BatchNormalization":
            reads = node.input(0) == name and name not in node.inputs[1:]
            return tuple(found) if reads and is_inference(node) else ()
        if not _passes(node, name, network):
            break
        name = node.outputs[0]
    return ()


def _only_reader(name: str, network: Network) -> Node | None:
    uses = network.consumers.get(name, ())
    if len(uses) != 1 or uses[0].slot < 0 or name in network.output_names:
        return None
    node = network.nodes[uses[0].node]
    return None if node.domain else node


def _passes(node: Node, name: str, network: Network) -> bool:
    """Whether a node only adds constants to a tensor, or nothing."""
    if node.op_type == "Identity":
        return True
    if node.op_type == "Dropout":
        asleep = not node.input(2) or network.values.get(node.input(2)) == (0.0,)
        return asleep and not any(node.outputs[1:]) and node.attributes.get("is_test", 1) != 0
    if node.op_type == "Sub":
        return node.input(0) == name and node.input(1) in network.constants
    return node.op_type == "Add" and any(item in network.constants for item in node.inputs)


def added_constants(chain: tuple[Node, ...], network: Network) -> Iterator[tuple[str, float]]:
    """Name the constants that the nodes of a chain add, with the sign they are added with."""
    for node in chain:
        if node.op_type in {"Add", "Sub"}:
            name = next(item for item in reversed(node.inputs) if item in network.constants)
            yield name, -1.0 if node.op_type == "Sub" else 1.0


def per_channel(value: NDArray[Any], channels: int, rank: int) -> Floats | None:
    """Read a constant that is added to ``[N, C, …]`` as one number a channel.

    Args:
        value: as stored.
        channels: C.
        rank: of what it is added to.

    Returns:
        float64 ``[C]``; None where it differs within a channel, or between images.
    """
    if value.ndim > rank:
        return None
    shape = (1,) * (rank - value.ndim) + value.shape
    if any(length != 1 for axis, length in enumerate(shape) if axis != 1) or shape[1] not in {1, channels}:
        return None
    return np.asarray(np.broadcast_to(np.asarray(value, np.float64).reshape(-1), (channels,)))


def norms_by_layer(network: Network) -> Mapping[int, tuple[Node, ...]]:
    """Map each layer with a batch normalisation of its own to the chain that leads to it, by node index."""
    chains = ((index, norm_chain(network.nodes[index], network)) for index in network.order)
    return {index: chain for index, chain in chains if chain}
