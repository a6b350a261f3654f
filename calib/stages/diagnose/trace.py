"""One run of a network, step by step: what every step is, what it read, and every tensor's value.

A trace is what two networks are compared by, whatever they are: an ONNX graph, or the operators that a PyTorch module
called. Steps that change nothing (Identity, Dropout, a Cast to the same type) are left out, and what follows from the
file or from shapes alone is a constant, so two exports of one network look alike.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Value = int | float | str | tuple[Any, ...] | None


@dataclass(frozen=True, eq=False)
class Step:
    """An operator as it ran.

    Attributes:
        index: place in its trace.
        label: name of the node for people.
        kind: operator, with its domain where that is not the standard one.
        data: tensors it computes on, in order; constants are left out.
        outputs: tensors it makes.
        parameters: what decides its arithmetic: attributes with their defaults, small constant inputs, by name.
        weights: constant float operands by name.
        slots: name of the operand that each entry of ``data`` is read as.
        source: index of the node in its model, or -1 where there is none.
        shaped: parameters that follow from the shapes of other tensors, not from the file.
        coarse: relative precision of weights that are known on an integer grid only, by name.
        given: names of its constant operands, as the node states them.
    """

    index: int
    label: str
    kind: str
    data: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: Mapping[str, Value] = field(default_factory=dict)
    weights: Arrays = field(default_factory=dict)
    slots: tuple[str, ...] = ()
    source: int = -1
    shaped: frozenset[str] = frozenset()
    coarse: Mapping[str, float] = field(default_factory=dict)
    given: frozenset[str] = frozenset()

    @cached_property
    def fingerprint(self) -> str:
        """Digest of kind, parameters and weights: equal steps compute the same."""
        parts = [self.kind, repr(sorted(self.parameters.items(), key=lambda item: item[0])), repr(self.slots)]
        parts += [f"{name} {digest(array)}" for name, array in sorted(self.weights.items())]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @cached_property
    def weight_digest(self) -> str:
        """Digest of the weights alone, empty where there are none that tell anything."""
        large = [f"{name} {digest(array)}" for name, array in sorted(self.weights.items()) if array.size > 4]
        return hashlib.sha256("\n".join(large).encode()).hexdigest() if large else ""


def digest(array: NDArray[Any]) -> str:
    """Digest of an array's type, shape and bytes."""
    head = f"{array.dtype} {array.shape} ".encode()
    return hashlib.sha256(head + np.ascontiguousarray(array).tobytes()).hexdigest()


@dataclass
class Trace:
    """A network's steps in topological order, and the values of one run.

    Attributes:
        place: what to call the network.
        steps: in topological order.
        inputs: tensors that the run was fed.
        outputs: tensors that the run answered.
        values: value of every tensor that a step makes, and of the inputs; may lack some where the network cannot run.
    """

    place: str
    steps: Sequence[Step]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    values: dict[str, NDArray[Any]]

    @cached_property
    def makers(self) -> dict[str, Step]:
        """The step that makes each tensor."""
        return {name: step for step in self.steps for name in step.outputs if name}

    @cached_property
    def readers(self) -> dict[str, list[Step]]:
        """The steps that read each tensor, in order."""
        found: dict[str, list[Step]] = {}
        for step in self.steps:
            for name in dict.fromkeys(step.data):
                found.setdefault(name, []).append(step)
        return found

    @cached_property
    def depth(self) -> dict[str, int]:
        """Place of each tensor along the network: inputs 0, then the order of the steps from 1."""
        places = dict.fromkeys(self.inputs, 0)
        for place, step in enumerate(self.steps, 1):
            places |= dict.fromkeys(step.outputs, place)
        return places
