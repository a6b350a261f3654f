"""Dynamic ranges by tensor, whatever file they came from: the value that every format is read into and written from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LEVELS = 127
"""Positive INT8 levels: ``scale = amax / 127``."""

SCALE_STEPS: Mapping[str, tuple[float, float]] = {
    "float32": (2.0**-23, 2.0**-63), "bfloat16": (2.0**-7, 2.0**-63), "float16": (2.0**-10, 2.0**-24),
}  # fmt: skip
"""Types that scales are stored in: relative precision, and the floor below which they do not fall."""
SINGULAR: Mapping[str, str] = {
    "are": "is", "differ": "differs", "do": "does", "have": "has", "hold": "holds", "occur": "occurs",
    "quantize": "quantizes", "subtract": "subtracts", "take": "takes", "use": "uses",
}  # fmt: skip
"""Verbs that remarks begin with, of many tensors and of one."""

Naming = Literal["tensor", "module"]
Order = Literal["network", "sorted", "unknown"]


@dataclass(frozen=True)
class TensorRange:
    """One tensor's range.

    Attributes:
        name: tensor name, or ``module.quantizer`` in a table that names modules.
        amax: half-width of the range. Zero, negative or non-finite in a faulty file: reading repairs nothing.
        scale: the float32 scale where the file states one, exactly; None where it states amax.
    """

    name: str
    amax: float
    scale: float | None = None

    @classmethod
    def of_scale(cls, name: str, scale: float) -> TensorRange:
        """Make the range of a float32 scale; ``scale * 127`` is exact in float64."""
        return cls(name, scale * LEVELS, scale)

    @property
    def exact_scale(self) -> float:
        """The float32 scale: as the file states it, else ``amax / 127`` rounded once."""
        if self.scale is not None:
            return self.scale
        with np.errstate(over="ignore"):
            return float(np.float32(self.amax / LEVELS))


@dataclass(frozen=True, eq=False)
class WeightRange:
    """The ranges of a weight's channels.

    Attributes:
        name: the weight, or ``module.weight_quantizer`` in a table that names modules.
        scales: float64 ``[C]``, or 0-d per tensor; ``amax / 127``.
        axis: axis of the channels, None per tensor or where the file does not say.
        observed: float64, same shape: the largest magnitude of the weight stored beside them, or None.
        rank: number of axes of the weight, where the file tells.
        elem_type: type that the scales are stored in.
    """

    name: str
    scales: NDArray[np.float64]
    axis: int | None = None
    observed: NDArray[np.float64] | None = None
    rank: int | None = None
    elem_type: str = "float32"

    @property
    def follows_weight(self) -> bool | None:
        """Whether the scales are those that ``max|w| / 127`` gives, within two units in their type's last place.

        All-zero channels may have any scale. None where the weight itself is not at hand.
        """
        if self.observed is None or self.observed.shape != self.scales.shape:
            return None
        alive = self.observed > 0
        wanted = self.observed[alive] / LEVELS
        precision, floor = SCALE_STEPS[self.elem_type]
        return bool(np.all(np.abs(self.scales[alive] - wanted) <= np.maximum(2 * precision * wanted, floor)))


@dataclass(frozen=True)
class Remark:
    """What a reader noticed that a user should know.

    Attributes:
        code: kind, for machines.
        names: the tensors concerned, in file order.
        text: one line for people; where there are names, it goes on from "so many tensors" with a plural verb.
        blocks: whether it keeps the table from being converted as it is: something would be lost or invented.
    """

    code: str
    names: tuple[str, ...]
    text: str
    blocks: bool = False

    @property
    def sentence(self) -> str:
        """The text as a sentence about so many tensors."""
        if not self.names:
            return self.text
        verb, _, rest = self.text.partition(" ")
        if len(self.names) == 1:
            return f"1 tensor {SINGULAR.get(verb, verb)} {rest}"
        return f"{len(self.names)} tensors {self.text}"


@dataclass(frozen=True)
class RangeTable:
    """The ranges of a file.

    Attributes:
        ranges: by name, in file order.
        source: key of the format it was read from.
        place: the file, for messages.
        weights: ranges of weights, where the format has them.
        naming: whether names are tensors' or modules'.
        order: what the order of ``ranges`` tells.
        metadata: what else the file says: header, algorithm, producer.
        remarks: what the reader noticed.
        parameters: weights, biases and batch normalisations that stand beside the ranges, float arrays by name; empty
            where the format has none.
    """

    ranges: Mapping[str, TensorRange]
    source: str
    place: str
    weights: tuple[WeightRange, ...] = ()
    naming: Naming = "tensor"
    order: Order = "unknown"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    remarks: tuple[Remark, ...] = ()
    parameters: Mapping[str, NDArray[Any]] = field(default_factory=dict, compare=False)

    def __iter__(self) -> Iterator[TensorRange]:
        """List the ranges in file order."""
        return iter(self.ranges.values())

    def __len__(self) -> int:
        """Count the ranges."""
        return len(self.ranges)

    def with_ranges(self, ranges: Iterable[TensorRange], **changes: Any) -> RangeTable:
        """Copy the table with other ranges, and other attributes where given."""
        return replace(self, ranges={item.name: item for item in ranges}, **changes)

    def remarked(self, *remarks: Remark) -> RangeTable:
        """Copy the table with further remarks."""
        return replace(self, remarks=(*self.remarks, *remarks))
