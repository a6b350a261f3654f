"""What every QuantizeLinear and DequantizeLinear of a network says: scales, zero points, integer type, axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import ConstantReader, Network, Node
from calib.core.lint.strip import dequantizes, quantizes


@dataclass(frozen=True)
class Quantizer:
    """One QuantizeLinear or DequantizeLinear node.

    Attributes:
        node: the node.
        quantizes: True for QuantizeLinear.
        constant: whether what it reads is constant: a weight or a bias.
        scale: its scales as stored, None where they are computed at run time or cannot be read.
        zero: its zero points, None where it has none or they cannot be read.
        zero_given: whether a zero point is given.
        integers: type of the quantized values, as numpy spells it; None where it is unknown.
        axis: as the attribute says, None where it is left out.
        shape: of the tensor it reads, None where the rank is unknown.
    """

    node: Node
    quantizes: bool
    constant: bool
    scale: NDArray[Any] | None
    zero: NDArray[Any] | None
    zero_given: bool
    integers: str | None
    axis: int | None
    shape: tuple[int | None, ...] | None

    @property
    def per_channel(self) -> bool:
        """Whether it has more than one scale."""
        return self.scale is not None and self.scale.size > 1

    @property
    def amax(self) -> float | None:
        """Half-width of the range of a symmetric INT8 pair with one scale."""
        if self.scale is None or self.scale.size != 1 or self.integers != "int8":
            return None
        return float(np.float64(self.scale.reshape(()))) * 127

    def axis_of(self, default: int) -> int | None:
        """Answer the axis of its scales, counted from 0; None where the rank is unknown or the axis is outside."""
        if self.shape is None:
            return None
        axis = default if self.axis is None else self.axis
        axis += len(self.shape) if axis < 0 else 0
        return axis if 0 <= axis < len(self.shape) else None


def read_quantizers(network: Network, constants: ConstantReader) -> tuple[Quantizer, ...]:
    """Read every QuantizeLinear and DequantizeLinear of the main graph, in network order."""
    nodes = (network.nodes[index] for index in network.order)
    return tuple(_read(node, network, constants) for node in nodes if quantizes(node) or dequantizes(node))


def _read(node: Node, network: Network, constants: ConstantReader) -> Quantizer:
    first = quantizes(node)
    zero_name = node.input(2)
    axis = node.attributes.get("axis")
    return Quantizer(
        node=node,
        quantizes=first,
        constant=node.input(0) in network.constants,
        scale=_value(node.input(1), constants),
        zero=_value(zero_name, constants),
        zero_given=bool(zero_name),
        integers=network.elem_types.get(node.outputs[0] if first else node.input(0)),
        axis=axis if isinstance(axis, int) else None,
        shape=network.shapes.get(node.input(0)),
    )


def _value(name: str, constants: ConstantReader) -> NDArray[Any] | None:
    value = constants.value(name) if name else None
    return value if value is not None and numeric(value) else None


def numeric(value: NDArray[Any]) -> bool:
    """Tell numbers, those of types that numpy itself lacks too, from texts and objects."""
    return value.dtype.kind not in "OSUM"
