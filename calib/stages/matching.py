"""Two exports of one network: which tensor of the one is which of the other, by structure and not by name.

First come tensors that are unmistakable: same operator, attributes, channels and the very same constants. From there
matches spread along the graph, to what a matched pair is made from and to what is made from it. What is left is
matched by network order, operator and shape between what is known.
"""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import onnx

from calib.core.graph import Activation, Network, Node, Shape
from calib.core.graph.stored import StoredValues

TRANSPARENT = frozenset({"Identity", "Dropout", "Cast"})
"""Operators that one exporter writes and another leaves out; what they make goes with what they read."""


@dataclass(frozen=True)
class Match:
    """Tensors of two networks.

    Attributes:
        pairs: name in the first to name in the second.
        sure: names in the first whose match does not rest on order alone.
        left: activations of the first without a match, in network order.
        right: activations of the second without a match, in network order.
    """

    pairs: dict[str, str]
    sure: frozenset[str]
    left: tuple[str, ...]
    right: tuple[str, ...]


@dataclass
class _Side:
    model: onnx.ModelProto
    network: Network
    full: dict[str, str] = field(default_factory=dict)
    loose: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        stored = StoredValues(self.model)
        self.activations = {item.name: item for item in self.network.activations}
        for item in self.network.activations:
            self.loose[item.name] = f"{item.op_type} {_form(item.shape)}"
            self.full[item.name] = self._signature(item, stored)

    def _signature(self, item: Activation, stored: StoredValues) -> str:
        node = self.maker(item.name)
        if node is None:
            return f"{self.loose[item.name]} {item.elem_type}"
        constants = [_digest(stored, name) for name in node.inputs if name in self.network.constants]
        attributes = sorted((key, value) for key, value in node.attributes.items())
        return f"{self.loose[item.name]} {node.outputs.index(item.name)} {attributes} {constants}"

    def maker(self, name: str) -> Node | None:
        producer = self.activations[name].producer
        return None if producer is None else self.network.nodes[producer]

    def reads(self, name: str) -> list[str]:
        """Activations that a tensor is made from."""
        node = self.maker(name)
        return [] if node is None else [source for source in node.inputs if source in self.activations]

    def made(self, name: str) -> Iterator[tuple[str, str]]:
        """Activations made from a tensor, each with the operator, the slot it is read in and its own slot."""
        for use in self.network.consumers.get(name, ()):
            node = self.network.nodes[use.node]
            for slot, output in enumerate(node.outputs):
                if output in self.activations:
                    yield f"{node.op_type} {use.slot} {slot} {self.loose[output]}", output


def _form(shape: Shape | None) -> str:
    """Rank and channels: batch and picture size may be fixed in one export and open in the other."""
    if shape is None:
        return "?"
    return f"{len(shape)} {shape[1] if len(shape) > 1 else ''}"


def _digest(stored: StoredValues, name: str) -> str:
    value = stored.value(name)
    if value is None:
        return "?"
    if not value.size or value.ndim == 0:
        return f"{value.shape} {value}"
    return hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]


def match_networks(first: onnx.ModelProto, one: Network, second: onnx.ModelProto, two: Network) -> Match:
    """Match the activations of two exports of one network.

    Args:
        first: the network whose names are known.
        one: its analysis.
        second: the network whose names are wanted.
        two: its analysis.
    """
    left, right = _Side(first, one), _Side(second, two)
    pairs = dict(_unmistakable(left.full, right.full))
    _spread(pairs, left, right)
    sure = frozenset(pairs)
    pairs.update(list(_in_order(pairs, left, right)))
    _spread(pairs, left, right)
    _skip_transparent(pairs, left)
    taken = set(pairs.values())
    return Match(
        pairs={name: pairs[name] for name in left.activations if name in pairs},
        sure=sure,
        left=tuple(name for name in left.activations if name not in pairs),
        right=tuple(name for name in right.activations if name not in taken),
    )


def _unmistakable(left: dict[str, str], right: dict[str, str]) -> Iterator[tuple[str, str]]:
    counts = [Counter(side.values()) for side in (left, right)]
    where = {signature: name for name, signature in right.items()}
    for name, signature in left.items():
        if counts[0][signature] == 1 and counts[1][signature] == 1:
            yield name, where[signature]


def _spread(pairs: dict[str, str], left: _Side, right: _Side) -> None:
    """Follow the graph from matched pairs to their sources and to what is made from them."""
    taken = set(pairs.values())
    pending = list(pairs.items())
    while pending:
        name, other = pending.pop()
        for ours, theirs in (*_sources(name, other, left, right), *_results(name, other, left, right)):
            if ours not in pairs and theirs not in taken and left.loose[ours] == right.loose[theirs]:
                pairs[ours] = theirs
                taken.add(theirs)
                pending.append((ours, theirs))


def _sources(name: str, other: str, left: _Side, right: _Side) -> Iterator[tuple[str, str]]:
    ours, theirs = left.reads(name), right.reads(other)
    if len(ours) == len(theirs):
        yield from zip(ours, theirs, strict=True)


def _results(name: str, other: str, left: _Side, right: _Side) -> Iterator[tuple[str, str]]:
    ours, theirs = (list(side.made(tensor)) for side, tensor in ((left, name), (right, other)))
    counts = [Counter(key for key, _ in made) for made in (ours, theirs)]
    known = dict(theirs)
    yield from ((tensor, known[key]) for key, tensor in ours if counts[0][key] == 1 and counts[1].get(key) == 1)


def _in_order(pairs: dict[str, str], left: _Side, right: _Side) -> Iterator[tuple[str, str]]:
    """Match what is left by order, operator and shape; matched pairs hold the two sequences together."""
    marks = {other: name for name, other in pairs.items()}
    ours = [f"={name}" if name in pairs else left.loose[name] for name in left.activations]
    theirs = [f"={marks[name]}" if name in marks else right.loose[name] for name in right.activations]
    names, others = list(left.activations), list(right.activations)
    matcher = difflib.SequenceMatcher(None, ours, theirs, autojunk=False)
    for block in matcher.get_matching_blocks():
        for offset in range(block.size):
            if names[block.a + offset] not in pairs:
                yield names[block.a + offset], others[block.b + offset]


def _skip_transparent(pairs: dict[str, str], left: _Side) -> None:
    """Give a tensor behind an Identity or the like the match of what that reads."""
    for name in left.activations:
        node = left.maker(name)
        if name not in pairs and node is not None and node.op_type in TRANSPARENT and node.inputs[0] in pairs:
            pairs[name] = pairs[node.inputs[0]]
