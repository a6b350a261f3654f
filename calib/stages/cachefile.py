"""From a network and its ranges to the entries of a TensorRT cache, with an account of what they cover."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from calib.core.graph import FLOAT_TYPES, Activation, Network, Uncovered
from calib.core.quantization import QUANT_MAX, SCALE_FLOOR, scale_from_amax
from calib.errors import StatisticsError
from calib.types.gate import few
from calib.types.statistics import DynamicRange

CONSTANT_LAYERS = frozenset(
    {"Add", "Sub", "Mul", "Div", "Pow", "Min", "Max", "Sum", "Mean", "PRelu", "MatMul", "Gemm", "Where", "Concat"}
)
"""Operators whose constant operand TensorRT turns into a layer of its own, ``(Unnamed Layer* N) [Constant]``."""


@dataclass(frozen=True)
class Coverage:
    """What the entries of a cache cover, and what not.

    Attributes:
        covered: tensors with an entry, in network order.
        dead: of these, the ones that were zero on every image; their range is ``DEAD_AMAX``.
        floored: of these, the ones alive but too small for a float32 scale of use; raised to the floor.
        never_observed: float activations without range: the branch did not run, or nothing collected them. They
            get no entry; TensorRT runs the layers around them in float.
        not_covered: tensors that need none, with the reason (integer, bool, constant, …).
        unnamed_constants: operators whose constants become TensorRT layers that ONNX gives no name; TensorRT
            reports them as missing a scale.
        foreign: ranges for tensors this network does not have.
    """

    covered: tuple[str, ...]
    dead: tuple[str, ...]
    floored: tuple[str, ...]
    never_observed: tuple[str, ...]
    not_covered: tuple[Uncovered, ...]
    unnamed_constants: tuple[str, ...]
    foreign: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every float activation has an entry."""
        return not self.never_observed

    def lines(self) -> tuple[str, ...]:
        """Say it for people, a line a finding."""
        return tuple(_lines(self))


def cache_entries(
    network: Network, ranges: Mapping[str, DynamicRange], never_observed: Collection[str] = ()
) -> tuple[tuple[tuple[str, float], ...], Coverage]:
    """Give every float activation its scale, in network order; none is zero, none non-finite.

    Args:
        network: the network the cache is for.
        ranges: dynamic range by tensor name; an amax of 0 marks a tensor that was zero on every image.
        never_observed: names whose range, should they have one, rests on no value at all.

    Returns:
        ``(name, scale)`` pairs, scales exact in float32, and the coverage.

    Raises:
        StatisticsError: an amax is negative, infinite or NaN; the tensor is named.
    """
    unseen = set(never_observed)
    amax = {name: item.amax for name, item in ranges.items() if name not in unseen}
    wanted = [item.name for item in network.activations if item.name in amax]
    entries = tuple((name, _scale(name, amax[name])) for name in wanted)
    coverage = Coverage(
        covered=tuple(wanted),
        dead=tuple(name for name in wanted if amax[name] == 0),
        floored=tuple(name for name in wanted if 0 < amax[name] / QUANT_MAX < SCALE_FLOOR["float32"]),
        never_observed=tuple(item.name for item in network.activations if _unseen(item, amax)),
        not_covered=network.not_covered,
        unnamed_constants=tuple(_unnamed_constants(network)),
        foreign=tuple(sorted(set(ranges) - {item.name for item in network.activations})),
    )
    return entries, coverage


def _unseen(activation: Activation, amax: Mapping[str, float]) -> bool:
    """Tell whether a float activation lacks a range; one of unknown type without range was not float."""
    return activation.name not in amax and activation.elem_type in FLOAT_TYPES


def _scale(name: str, amax: float) -> float:
    if not math.isfinite(amax) or amax < 0:
        raise StatisticsError(
            f"tensor {name!r}",
            expected="amax finite and >= 0",
            got=f"{amax!r}",
            remedy="find the image that overflows; an amax of 0 is fine, it marks a dead tensor",
        )
    return float(scale_from_amax(amax))


def _unnamed_constants(network: Network) -> Iterator[str]:
    activations = {item.name for item in network.activations}
    for index in network.order:
        node = network.nodes[index]
        operands = [name for name in node.inputs if name in network.constants]
        is_float = any(network.elem_types.get(name) in FLOAT_TYPES for name in operands)
        if node.op_type in CONSTANT_LAYERS and not node.domain and is_float and activations & set(node.outputs):
            yield node.label


def _lines(coverage: Coverage) -> Iterator[str]:
    yield f"{len(coverage.covered)} float activations have a scale"
    for names, text in (
        (coverage.never_observed, "were never observed and have none"),
        (coverage.dead, "were zero on every image and got a floor"),
        (coverage.floored, "were too small for a float32 scale and got a floor"),
        (coverage.foreign, "have a range but are not in this network"),
        (coverage.unnamed_constants, "have constants that TensorRT names itself"),
    ):
        if names:
            yield f"{len(names)} {text}: {few(names, 5)}"
    kinds = Counter(item.reason for item in coverage.not_covered)
    if kinds:
        yield "need none: " + ", ".join(f"{count} {reason}" for reason, count in sorted(kinds.items()))
