"""Parameters of BatchNormalization nodes, and the weights of layers as they are once these are folded into them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.axes import weight_axis
from calib.core.graph import Node
from calib.core.lint.subject import Subject, number
from calib.core.normfold import EPSILON, norm_chain
from calib.core.plan import PlacementOptions

BY_CHANNEL = PlacementOptions(conv_transpose="axis")
LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def batchnorms(subject: Subject) -> Iterator[Node]:
    """List the BatchNormalization nodes in network order."""
    return subject.nodes("BatchNormalization")


def epsilon(node: Node) -> float:
    """Read epsilon."""
    return number(node, "epsilon", EPSILON)


def folded_after(node: Node, subject: Subject) -> Node | None:
    """Find the BatchNormalization that alone reads a layer's output, perhaps behind constants that are added to it."""
    chain = norm_chain(node, subject.network)
    return chain[-1] if chain else None


def gain(node: Node, subject: Subject) -> NDArray[np.float64] | None:
    """Answer what a BatchNormalization multiplies each channel by; None where its parameters are not constant."""
    scale, variance = subject.value(node.input(1)), subject.value(node.input(4))
    if scale is None or variance is None or scale.size != variance.size:
        return None
    with np.errstate(all="ignore"):
        return np.asarray(scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + epsilon(node))).ravel()


@dataclass(frozen=True)
class ChannelRanges:
    """Largest magnitude of each output channel of a layer's weight.

    Attributes:
        node: the layer.
        tensor: its weight.
        amax: one a channel, float64; with a BatchNormalization behind the layer folded in.
        folded: whether one is.
    """

    node: Node
    tensor: str
    amax: NDArray[np.float64]
    folded: bool

    @property
    def dead(self) -> NDArray[np.bool_]:
        """Channels without weights: below a millionth of the largest, or zero."""
        return np.asarray(self.amax <= 1e-6 * self.amax.max(initial=0.0))

    @property
    def ratio(self) -> float:
        """Largest channel range over the smallest of the living ones; 1 where there are none."""
        alive = self.amax[~self.dead]
        return float(alive.max() / alive.min()) if alive.size else 1.0


def channel_ranges(subject: Subject) -> Iterator[ChannelRanges]:
    """List the channel ranges of every layer with a constant float weight of two axes or more."""
    for node in subject.layers():
        slot = next((slot for slot in (0, 1) if node.input(slot) and subject.is_constant(node.input(slot))), None)
        axis = None if slot is None else weight_axis(node, slot, subject.network, BY_CHANNEL)
        value = subject.value(node.input(slot)) if slot is not None and axis is not None else None
        if slot is not None and axis is not None and value is not None and _usable(value):
            yield _ranges(node, node.input(slot), value, axis, subject)


def _usable(value: NDArray[Any]) -> bool:
    return value.size > 0 and (value.dtype.kind == "f" or value.dtype.name == "bfloat16")


def _ranges(node: Node, tensor: str, value: NDArray[Any], axis: int, subject: Subject) -> ChannelRanges:
    others = tuple(item for item in range(value.ndim) if item != axis)
    low, high = value.min(axis=others), value.max(axis=others)
    amax = np.maximum(np.abs(low.astype(np.float64)), np.abs(high.astype(np.float64)))
    behind = folded_after(node, subject)
    factor = gain(behind, subject) if behind is not None else None
    fits = factor is not None and factor.size == amax.size and bool(np.isfinite(factor).all())
    return ChannelRanges(node, tensor, amax * np.abs(factor) if fits and factor is not None else amax, fits)
