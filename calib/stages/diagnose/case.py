"""A departure under the magnifier: its steps paired with the reference's, what differs, and what mending it does."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.difference import Difference, difference
from calib.core.weightdiff import SAME, WeightChange, weight_change
from calib.stages.diagnose.foldsteps import fold_norms
from calib.stages.diagnose.matches import BOUNDING, Alignment, Departure
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.steprun import AS_IT_IS, Mend, run_step
from calib.stages.diagnose.trace import Arrays, Step, Trace, Value

COMMUTATIVE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Equal", "Xor"})
FAMILIES = {
    "GlobalAveragePool": "average",
    "ReduceMean": "average",
    "Gemm": "product",
    "MatMul": "product",
    "Flatten": "Reshape",
    "Squeeze": "Reshape",
    "Unsqueeze": "Reshape",
}
"""Operators that exporters choose between for one thing."""
What = Literal["parameter", "weight", "dropped", "inserted", "replaced", "order", "wiring"]


@dataclass(frozen=True)
class Change:
    """One thing that the candidate does otherwise.

    Attributes:
        what: kind of the change.
        step: the candidate's step, None where it has none.
        other: the reference's step, None where it has none.
        name: parameter or operand.
        before: the reference's value.
        after: the candidate's.
        weights: what was done to the weights.
    """

    what: What
    step: Step | None
    other: Step | None
    name: str = ""
    before: Value = None
    after: Value = None
    weights: WeightChange | None = None

    @property
    def label(self) -> str:
        """Name of the node, the candidate's where it has one."""
        found = self.step or self.other
        return "" if found is None else found.label

    @property
    def kind(self) -> str:
        """Operator of the node."""
        found = self.step or self.other
        return "" if found is None else found.kind


@dataclass
class Case:
    """A departure with all that a detector may ask.

    Attributes:
        departure: the piece.
        reference: the reference's trace.
        candidate: the candidate's.
        alignment: which tensor is which.
        runtime: runs steps.
        noise: relative error that rounding alone may leave in this piece.
        shapes_moved: whether a tensor further up has another shape, which sizes worked out from shapes follow.
    """

    departure: Departure
    reference: Trace
    candidate: OnnxTrace
    alignment: Alignment
    runtime: Runtime
    noise: float = 0.0
    shapes_moved: bool = False

    @cached_property
    def pairs(self) -> list[tuple[Step | None, Step | None]]:
        """Steps of the candidate with their counterparts; either is None where there is none."""
        ours, theirs = fold_norms(self.departure.steps, self.departure.reference_steps)
        found: list[tuple[Step | None, Step | None]] = []
        mine, others = ([FAMILIES.get(step.kind, step.kind) for step in side] for side in (ours, theirs))
        matcher = difflib.SequenceMatcher(None, mine, others, autojunk=False)
        for tag, low, high, start, end in matcher.get_opcodes():
            left, right = list(ours[low:high]), list(theirs[start:end])
            if tag in {"equal", "replace"} and len(left) == len(right):
                found.extend(zip(left, right, strict=True))
            else:
                found.extend((step, None) for step in left)
                found.extend((None, step) for step in right)
        return found

    @property
    def is_pair(self) -> bool:
        """Whether one step stands against one, of the same operator or both activations."""
        ours, theirs = self.departure.steps, self.departure.reference_steps
        if len(ours) != 1 or len(theirs) != 1:
            return False
        return ours[0].kind == theirs[0].kind or {ours[0].kind, theirs[0].kind} <= BOUNDING

    @cached_property
    def changes(self) -> tuple[Change, ...]:
        """Everything that the candidate does otherwise in this piece."""
        return tuple(self._changes())

    def _changes(self) -> Iterator[Change]:
        for step, other in self.pairs:
            if step is None or other is None:
                yield Change("dropped" if step is None else "inserted", step, other)
            elif FAMILIES.get(step.kind, step.kind) != FAMILIES.get(other.kind, other.kind):
                yield Change("replaced", step, other, before=other.kind, after=step.kind)
            else:
                yield from (
                    change
                    for change in _parameter_changes(step, other)
                    if not (self.shapes_moved and change.name in step.shaped)
                )
                yield from _weight_changes(step, other)
                yield from self._reading_changes(step, other)

    def _reading_changes(self, step: Step, other: Step) -> Iterator[Change]:
        """Operands in another order, or other tensors altogether."""
        ours = [self._reference_name(name) for name in step.data]
        if None in ours or ours == list(other.data) or self.departure.reference_steps[-1].index != other.index:
            return
        if sorted(map(str, ours)) == sorted(other.data):
            if step.kind not in COMMUTATIVE:
                yield Change("order", step, other, before=tuple(other.data), after=tuple(map(str, ours)))
            return
        inner = {name for item in self.departure.reference_steps for name in item.outputs}
        if not inner.intersection(other.data):
            yield Change("wiring", step, other, before=tuple(other.data), after=tuple(map(str, ours)))

    def _reference_name(self, name: str) -> str | None:
        match = self.alignment.matches.get(name)
        return None if match is None else match.reference

    @cached_property
    def wanted(self) -> NDArray[Any]:
        """What the piece should make."""
        return self.alignment.wanted(self.departure.tensor)

    @cached_property
    def own(self) -> NDArray[Any] | None:
        """What it makes."""
        return self.alignment.own.get(self.departure.tensor)

    @cached_property
    def inputs(self) -> dict[str, NDArray[Any]]:
        """What the piece reads, as the reference has it."""
        found = {name: self.alignment.value(name) for name in self.departure.frontier}
        return {name: value for name, value in found.items() if value is not None}

    def run(self, mends: Mapping[int, Mend], skip: Sequence[int] = ()) -> NDArray[Any] | None:
        """Run the piece, some steps changed and others left out (their first operand is passed on).

        Args:
            mends: changes by index of the step.
            skip: steps left out.
        """
        data: dict[str, NDArray[Any]] = dict(self.inputs)
        for step in self.departure.steps:
            if step.index in skip:
                data |= {name: data[step.data[0]] for name in step.outputs if step.data[0] in data}
                continue
            answer = self.run_alone(step, data, mends.get(step.index, AS_IT_IS))
            data |= answer or {}
        return data.get(self.departure.tensor)

    def run_alone(self, step: Step, data: Mapping[str, NDArray[Any]], mend: Mend = AS_IT_IS) -> Arrays | None:
        """Run one step of the candidate on given tensors."""
        known = {name: data[name] for name in step.data if name in data}
        return run_step(self.candidate, step, known, self.runtime, mend)

    def error(self, value: NDArray[Any] | None) -> Difference:
        """How far a value is from what the piece should make."""
        wanted = self.wanted
        if value is not None and value.shape != wanted.shape and value.size == wanted.size:
            wanted = wanted.reshape(value.shape)
        return difference(value, wanted)

    def heals(self, value: NDArray[Any] | None) -> bool:
        """Whether a mended piece makes what it should, up to rounding."""
        left = self.error(value).relative
        return left <= max(4 * self.noise, 2e-5) and left < 0.2 * self.departure.born.relative

    def heals_with(self, step: Step, mend: Mend) -> bool:
        """Whether changing one step is enough."""
        return self.heals(self.run({step.index: mend}))

    def heals_without(self, step: Step) -> bool:
        """Whether leaving a step out is enough."""
        return self.heals(self.run({}, skip=(step.index,)))

    def node_is_sound(self, step: Step, other: Step) -> bool:
        """Whether a step makes what its counterpart makes, on its counterpart's own inputs."""
        if len(step.data) != len(other.data) or not all(name in self.reference.values for name in other.data):
            return False
        data = {}
        for name, theirs in zip(step.data, other.data, strict=True):
            own = self.alignment.own.get(name)
            value = self.reference.values[theirs]
            data[name] = value if own is None or own.dtype == value.dtype else value.astype(own.dtype)
        answer = self.run_alone(step, data) or {}
        made = answer.get(step.outputs[0])
        wanted = self.reference.values.get(other.outputs[0])
        if made is None or wanted is None or made.size != wanted.size:
            return False
        return difference(made, wanted.reshape(made.shape)).relative <= max(4 * self.noise, 2e-5)


def _parameter_changes(step: Step, other: Step) -> Iterator[Change]:
    complete = step.source >= 0 and other.source >= 0
    for name in sorted(set(step.parameters) | set(other.parameters)):
        if not complete and (name not in step.parameters or name not in other.parameters):
            continue
        before, after = other.parameters.get(name), step.parameters.get(name)
        if not same_value(before, after):
            yield Change("parameter", step, other, name, before, after)


def same_value(one: Value, other: Value) -> bool:
    """Whether two parameters are equal, numbers up to the rounding of float32."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        return len(one) == len(other) and all(same_value(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, int | float) and isinstance(other, int | float):
        return bool(np.isclose(one, other, rtol=1e-6, atol=0))
    return one == other


def _weight_changes(step: Step, other: Step) -> Iterator[Change]:
    for name in sorted(set(step.weights) | set(other.weights)):
        before, after = other.weights.get(name), step.weights.get(name)
        if before is None or after is None:
            given = before if after is None else after
            if given is not None and np.any(given):
                words = "missing in the candidate" if after is None else "only in the candidate"
                found = WeightChange("missing" if after is None else "added", words, 1.0)
                yield Change("weight", step, other, name, weights=found)
            continue
        found = weight_change(before, after, max(SAME, step.coarse.get(name, 0.0), _precision(after)))
        if found.kind != "same":
            yield Change("weight", step, other, name, weights=found)


def _precision(weights: NDArray[Any]) -> float:
    """Relative precision that a stored type has."""
    return {"float16": 2.0**-10, "bfloat16": 2.0**-7}.get(weights.dtype.name, 0.0)
