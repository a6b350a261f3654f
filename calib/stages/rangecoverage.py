"""Ranges against a network: which tensors have one, which lack one, which ranges have no tensor, and why."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from calib.core.graph import FLOAT_TYPES, Activation, Network
from calib.core.printable import counted
from calib.core.roles import passes_range
from calib.core.trtcache import UNNAMED
from calib.types.gate import few
from calib.types.rangetable import RangeTable, TensorRange

PARSER_MADE = re.compile(r"ONNXTRT_|tmp_refittable_weight|.*_castHelper|.*ShuffledBy|.*_constant_output\Z")
REASONS: Mapping[str, str] = {
    "unnamed": "named by TensorRT's parser for one version and graph: constants and reshapes it turned into layers",
    "constant": "constants of the network; weights and constants need no range",
    "typed": "integer, boolean or shape tensors; they need no range",
    "output": "a layer's or tensor's name with TensorRT's own ending",
    "foreign": "not in this network: of another network, or of another export of this one",
}
NEEDED = frozenset({"foreign"})
"""Reasons that mean a range is lost; the others are of tensors that need none."""
SAME_VALUES = frozenset({"same", "negate", "abs", "concat"})
"""Derivations whose amax follows exactly from their sources'."""


@dataclass(frozen=True)
class EntryCoverage:
    """How a table fits a network.

    Attributes:
        matched: activations with a range, in network order.
        missing: float activations without, in network order.
        strangers: ranges without activation, by reason (key of :data:`REASONS`), in file order.
        derived: of the missing, those whose range follows from other ranges.
    """

    matched: tuple[str, ...]
    missing: tuple[str, ...]
    strangers: Mapping[str, tuple[str, ...]]
    derived: Mapping[str, TensorRange]

    @property
    def foreign(self) -> tuple[str, ...]:
        """Ranges that would be lost: real names that the network does not have."""
        return self.strangers.get("foreign", ())

    @property
    def other_network(self) -> bool:
        """Whether the table is plainly of another network or export: fewer than half of its real names are here."""
        return len(self.foreign) > len(self.matched)

    def lines(self) -> Iterator[str]:
        """Say it for people."""
        total = len(self.matched) + len(self.missing)
        yield f"{len(self.matched)} of {total} float activations have a range"
        if self.missing:
            yield f"{counted(len(self.missing), 'has', 'have')} none: {listed(self.missing)}"
        for reason, names in self.strangers.items():
            yield f"{counted(len(names), 'range')} without tensor, {REASONS[reason]}: {listed(names)}"


def cover(table: RangeTable, network: Network) -> EntryCoverage:
    """Lay a table that names tensors against a network."""
    activations = {item.name: item for item in network.activations}
    strangers: dict[str, list[str]] = {}
    typed = {item.name for item in network.not_covered if item.reason not in {"constant", "empty name"}}
    made = network.names | {node.name for node in network.nodes}
    for item in table:
        if item.name not in activations:
            strangers.setdefault(_reason(item.name, network, typed, made), []).append(item.name)
    missing = [
        item.name for item in activations.values() if item.name not in table.ranges and item.elem_type in FLOAT_TYPES
    ]
    return EntryCoverage(
        matched=tuple(name for name in activations if name in table.ranges),
        missing=tuple(missing),
        strangers={reason: tuple(strangers[reason]) for reason in REASONS if reason in strangers},
        derived=_derived(table, network),
    )


def parser_made(name: str) -> bool:
    """Whether TensorRT's ONNX parser made a name up."""
    return UNNAMED.search(name) is not None or PARSER_MADE.match(name) is not None


def _reason(name: str, network: Network, typed: Collection[str], made: Collection[str]) -> str:
    if parser_made(name):
        return "unnamed"
    if name in network.constants:
        return "constant"
    if name in typed:
        return "typed"
    base = name.removesuffix("_output")
    return "output" if base != name and base in made else "foreign"


def _derived(table: RangeTable, network: Network) -> dict[str, TensorRange]:
    """Find ranges that follow from others.

    Exactly those of reshaped, transposed, negated, concatenated tensors. Those of pooled and padded ones may be wider
    than need be, but in INT8 their integers are the source's, and so is their scale.
    """
    known: dict[str, TensorRange] = dict(table.ranges)
    found: dict[str, TensorRange] = {}
    for item in network.activations:
        names = () if item.name in known else _followed(item, network)
        sources = [known[name] for name in names if name in known]
        if names and len(sources) == len(names):
            largest = max(sources, key=lambda source: source.amax)
            known[item.name] = found[item.name] = TensorRange(item.name, largest.amax, largest.scale)
    return found


def _followed(item: Activation, network: Network) -> tuple[str, ...]:
    """Name the tensors that an activation's range follows from, if any."""
    rule = item.derivation
    if rule is not None and rule.kind in SAME_VALUES:
        return rule.sources
    node = None if item.producer is None else network.nodes[item.producer]
    pooled = node is not None and node.outputs[0] == item.name and passes_range(node, network)
    return (node.input(0),) if pooled and node is not None else ()


def listed(names: Sequence[str]) -> str:
    """Join names for a line, the first few of them."""
    return few(names, 5)
