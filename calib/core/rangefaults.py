"""Which ranges of a table cannot be trusted, and whether the table rests on real data at all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from calib.core.cachelook import IMPLAUSIBLE, INPUT_NAMES, MINUTE, input_fingerprint
from calib.core.trtcache import UNNAMED
from calib.types.rangetable import RangeTable, TensorRange

REMARK_REMEDIES: Mapping[str, str] = {
    "conflicts": "calibrate again, or delete all but one of them",
    "duplicates": "delete all but one of them",
    "asymmetric": "quantize again with symmetric INT8 (zero point 0)",
    "per_channel_activation": "quantize activations again with one scale a tensor",
    "lost_negative_side": "convert the calibration.json that was written beside this file",
}
"""What to do about what a reader remarked on, by the remark's code."""


@dataclass(frozen=True)
class Faults:
    """Ranges that are wrong for certain, by kind, in file order.

    Attributes:
        nonfinite: infinite or NaN.
        negative: below zero: the file is damaged.
        implausible: finite, but beyond :data:`IMPLAUSIBLE`.
        minute: not zero, but below :data:`MINUTE`.
        dead: zero: the tensor was zero on every image.
    """

    nonfinite: tuple[str, ...]
    negative: tuple[str, ...]
    implausible: tuple[str, ...]
    minute: tuple[str, ...]
    dead: tuple[str, ...]

    @property
    def unusable(self) -> frozenset[str]:
        """Names whose range cannot serve at all; dead ones can: zero is exact in any range."""
        return frozenset((*self.nonfinite, *self.negative, *self.implausible, *self.minute))


def find_faults(table: RangeTable) -> Faults:
    """Sort a table's faulty ranges by kind."""
    kinds: dict[str, list[str]] = {"nonfinite": [], "negative": [], "implausible": [], "minute": [], "dead": []}
    for item in table:
        kind = _fault(item.amax)
        if kind:
            kinds[kind].append(item.name)
    return Faults(**{kind: tuple(names) for kind, names in kinds.items()})


def _fault(amax: float) -> str | None:
    if not math.isfinite(amax):
        return "nonfinite"
    if amax < 0:
        return "negative"
    if amax > IMPLAUSIBLE:
        return "implausible"
    if 0 < amax < MINUTE:
        return "minute"
    return "dead" if amax == 0 else None


def input_ranges(table: RangeTable, inputs: Iterable[str] | None = None) -> tuple[TensorRange, ...]:
    """Find the ranges of the network's inputs.

    Args:
        table: names tensors.
        inputs: the network's float inputs, where it is at hand.

    Returns:
        Those of the inputs; without a network, and where it is another's, the first range of a table in network
        order, else the ranges whose names are what exporters call an image input.
    """
    known = tuple(table.ranges[name] for name in inputs or () if name in table.ranges)
    if known:
        return known
    first = next(iter(table), None)
    if first is not None and table.order == "network" and not UNNAMED.search(first.name):
        return (first,)
    return tuple(item for item in table if INPUT_NAMES.match(item.name))


def worthless(ranges: Iterable[TensorRange]) -> Mapping[str, str]:
    """Tell which inputs' ranges show that the calibration data were no images, and why.

    Blank inputs count only if all are: one that is always zero may be a mask.
    """
    listed = tuple(ranges)
    reasons = {item.name: input_fingerprint(item.amax) for item in listed}
    wrong = {name: found.text for name, found in reasons.items() if found.faulty and found.code != "blank"}
    if listed and not wrong and all(found.code == "blank" for found in reasons.values()):
        return {name: found.text for name, found in reasons.items()}
    return wrong
