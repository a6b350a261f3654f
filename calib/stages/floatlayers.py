"""Layers that the user keeps in float: from the patterns given to the nodes meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import onnx

from calib.core.graph import Network, analyse
from calib.core.plan import Decision, PlacementOptions, Target
from calib.errors import ModelError, UsageError
from calib.stages.foldnorms import FoldedNorm, fold_norms
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.stages.qdq import raise_opset
from calib.types.gate import few

FLAG = "--keep-float"


@dataclass(frozen=True)
class FloatLayers:
    """What patterns name.

    Attributes:
        nodes: labels of nodes that INT8 could have, in network order, once batch normalisation is folded.
        idle: patterns that name only nodes that stay in float anyway.
        patterns: patterns that name the same nodes in the network with batch normalisation folded too: in place of one
            that names a node by what is gone then stand the labels of all that it names.
        before: their labels before, where those were others: an unnamed node goes by its output.
    """

    nodes: tuple[str, ...]
    idle: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    before: Mapping[str, str] = field(default_factory=dict)

    def options(self, options: PlacementOptions = DEFAULTS) -> PlacementOptions:
        """Placement choices that keep these nodes in float, whether batch normalisation is folded or not."""
        if not self.nodes:
            return options
        return replace(options, float_nodes=options.float_nodes | {*self.nodes, *self.before.values()})


def find_float_layers(
    model: onnx.ModelProto, patterns: Sequence[str], target: Target, options: PlacementOptions = DEFAULTS
) -> FloatLayers:
    """Find the nodes that patterns name.

    Args:
        model: the float network.
        patterns: names of nodes or of the tensors they make; ``*``, ``?`` and ``[...]`` as in a shell, unless a name is
            spelt just so. A layer also goes by the batch normalisation that is folded into it.
        target: whose placement rules say which nodes INT8 could have.
        options: further placement choices.

    Raises:
        UsageError: a pattern names no node.
    """
    if not patterns:
        return FloatLayers(())
    folding = fold_norms(_raised(model, options))
    network = analyse(folding.model)
    folded = {item.label: item for item in folding.folded}
    every = dict.fromkeys((item.name for item in network.activations), 1.0)
    decisions = plan_quantization(network, every, target, options).decisions
    names = [_Names.of(network, item, folded.get(item.label)) for item in decisions]
    chosen: set[int] = set()
    idle: list[str] = []
    lasting: list[str] = []
    for pattern in patterns:
        named = _named(pattern, decisions, names)
        if not named:
            raise _unknown(pattern, decisions)
        quantized = {item.node for item in named if item.status == "int8"}
        chosen |= quantized
        idle += [] if quantized else [pattern]
        same = named == _named(pattern, decisions, [replace(own, gone=frozenset()) for own in names])
        lasting += [pattern] if same else [item.label for item in named]
    nodes = tuple(item.label for item in decisions if item.node in chosen)
    before = {name: folded[name].layer for name in nodes if name in folded}
    return FloatLayers(nodes, tuple(idle), tuple(dict.fromkeys(lasting)), before)


def _raised(model: onnx.ModelProto, options: PlacementOptions) -> onnx.ModelProto:
    """The network at the operator set at which it is quantized; as it is where that cannot be: its writer says so."""
    try:
        return raise_opset(model, options)[0]
    except ModelError:
        return model


@dataclass(frozen=True)
class _Names:
    """What a node goes by: its label, the tensors that it makes, and names that folding does away with."""

    label: str
    outputs: frozenset[str]
    gone: frozenset[str]

    @classmethod
    def of(cls, network: Network, item: Decision, folded: FoldedNorm | None) -> _Names:
        outputs = frozenset(filter(None, network.nodes[item.node].outputs))
        gone = () if folded is None else (folded.layer, folded.norm, *folded.gone)
        return cls(item.label, outputs, frozenset(gone) - {item.label})

    @property
    def every(self) -> frozenset[str]:
        return self.outputs | self.gone | {self.label}


def _named(pattern: str, decisions: Sequence[Decision], names: Sequence[_Names]) -> list[Decision]:
    """Find what a pattern names: what has this very label, else what goes by this very name, else all that match."""
    tests: tuple[Callable[[_Names], bool], ...] = (
        lambda own: own.label == pattern,
        lambda own: pattern in own.every,
        lambda own: any(fnmatchcase(name, pattern) for name in own.every),
    )
    found = ([item for item, own in zip(decisions, names, strict=True) if test(own)] for test in tests)
    return next(filter(None, found), [])


def _unknown(pattern: str, decisions: Iterable[Decision]) -> UsageError:
    layers = [item.label for item in decisions if item.status == "int8"]
    core = max(re.split(r"[*?\[\]]+", pattern), key=len)
    near = [name for name in layers if core in name]
    return UsageError(
        f"{FLAG} {pattern}",
        expected="a pattern of nodes, or of tensors that they make",
        got="none that it names",
        remedy=f"name {few(near)} in full, or put * before and after {core!r}"
        if near
        else f"of {len(layers)} layers that can run in INT8 the names are {few(layers)}; quote * for the shell",
    )
