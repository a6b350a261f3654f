"""What an operator's implementation is handed besides its tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from calib.core.graph import Node
from calib.errors import ModelError

Tensor = Any
"""``torch.Tensor``; the type checker does not see PyTorch, which is not installed everywhere."""
Operator = Callable[..., Any]
"""``(call, *inputs) -> tensor or tuple of tensors``; an omitted input is None."""


@dataclass(frozen=True)
class Call:
    """A node as its implementation sees it.

    Attributes:
        node: the node, with its plain attributes.
        opset: version of the standard operator set.
        tensors: its attributes that are tensors, on the CPU.
    """

    node: Node
    opset: int
    tensors: Mapping[str, Tensor] = field(default_factory=dict)

    def get(self, name: str, default: Any = None) -> Any:
        """Read an attribute."""
        return self.node.attributes.get(name, default)

    def ints(self, name: str, default: Sequence[int] | None = None) -> list[int] | None:
        """Read an attribute that is a list of whole numbers."""
        value = self.node.attributes.get(name, default)
        return None if value is None else [int(item) for item in value]  # type: ignore[union-attr]

    def refuse(self, expected: str, got: str) -> ModelError:
        """Make the error for what this operator cannot do here."""
        return ModelError(
            f"node {self.node.label} ({self.node.op_type})",
            expected=expected,
            got=got,
            remedy="export the network in another way, or train the part of it that can be run here",
        )


def numbers(tensor: Tensor) -> list[int]:
    """Read a tensor of whole numbers: a shape, axes, positions."""
    return [int(item) for item in tensor.reshape(-1).tolist()]


def axes_of(call: Call, given: Tensor | None) -> list[int] | None:
    """Read axes from the input, or, in older operator sets, from the attribute."""
    return call.ints("axes") if given is None else numbers(given)


def aligned(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Bring tensors to one device: shapes and constants live on the CPU until they meet data."""
    device = next((item.device for item in tensors if item.device.type != "cpu"), None)
    if device is None:
        return tensors
    return tuple(item.to(device, non_blocking=True) if item.device != device else item for item in tensors)


def same_float(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Bring tensors to one device, and floats to the widest type among them, as automatic mixed precision needs it."""
    moved = aligned(*tensors)
    floats = {item.dtype for item in moved if item.is_floating_point()}
    if len(floats) < 2:
        return moved
    widest = max(floats, key=lambda kind: torch.finfo(kind).bits)
    return tuple(item.to(widest) if item.is_floating_point() else item for item in moved)
