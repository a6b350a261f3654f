"""What an alignment answers with: which tensor is which, where the candidate departs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from numpy.typing import NDArray

from calib.core.difference import Difference
from calib.stages.diagnose.lookup import arranged
from calib.stages.diagnose.trace import Step

BOUNDING = frozenset({"Relu", "Clip", "LeakyRelu", "PRelu", "HardSwish", "Elu", "Selu", "Swish", "Gelu", "Mish"})
"""Activations that may agree on one image and not on another."""
How = Literal["input", "structure", "value", "forced"]


@dataclass(frozen=True)
class Match:
    """A tensor of the candidate and the one of the reference that it is.

    Attributes:
        reference: name in the reference.
        how: how it was recognised; ``forced`` where the values differ.
        born: error that its step makes on the reference's values.
        perm: axes of the reference's tensor in the candidate's order, where those differ.
    """

    reference: str
    how: How
    born: Difference
    perm: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Departure:
    """A piece of the candidate that makes another tensor of the same inputs than the reference does.

    Attributes:
        tensor: what the piece makes, in the candidate.
        reference: what it should be, in the reference.
        steps: the candidate's steps between tensors that agree and this one, in order.
        reference_steps: the reference's between the same tensors.
        frontier: tensors of the candidate that the piece reads.
        born: error that the piece makes.
        strong: whether the tensor was beyond recognition.
    """

    tensor: str
    reference: str
    steps: tuple[Step, ...]
    reference_steps: tuple[Step, ...]
    frontier: tuple[str, ...]
    born: Difference
    strong: bool


@dataclass
class Alignment:
    """What came of it.

    Attributes:
        matches: tensor of the candidate to its match, in network order.
        departures: pieces that make any error or differ at all, in network order; most of it is rounding.
        lost: tensors of the candidate without counterpart from which an output is reached.
        own: what each tensor of the candidate holds, computed on the reference's values.
        reference: the reference's values.
    """

    matches: dict[str, Match]
    departures: list[Departure]
    lost: tuple[str, ...]
    own: dict[str, NDArray[Any]] = field(default_factory=dict)
    reference: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def value(self, tensor: str) -> NDArray[Any] | None:
        """What the steps behind a tensor of the candidate compute on: the reference's value where it is known."""
        match = self.matches.get(tensor)
        if match is None:
            return self.own.get(tensor)
        return arranged(self.reference[match.reference], match.perm, self.own.get(tensor))

    def wanted(self, tensor: str) -> NDArray[Any]:
        """The reference's value of a matched tensor in the candidate's arrangement, in its own precision."""
        match, own = self.matches[tensor], self.own.get(tensor)
        found = arranged(self.reference[match.reference], match.perm, None)
        return found.reshape(own.shape) if own is not None and own.size == found.size else found
