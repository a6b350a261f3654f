"""Layers that the user keeps in float: from the patterns given to the nodes meant."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

import onnx

from calib.core.graph import Network, analyse
from calib.core.plan import Decision, PlacementOptions, Target
from calib.errors import UsageError
from calib.stages.foldnorms import FoldedNorm, fold_norms
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.types.gate import few

FLAG = "--keep-float"


@dataclass(frozen=True)
class FloatLayers:
    """What patterns name.

    Attributes:
        nodes: labels of nodes that INT8 could have, in network order, once batch normalisation is folded.
        idle: patterns that name only nodes that stay in float anyway.
        before: their labels before, where those were others: an unnamed node goes by its output.
    """

    nodes: tuple[str, ...]
    idle: tuple[str, ...] = ()
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
    folding = fold_norms(model)
    network = analyse(folding.model)
    folded = {item.label: item for item in folding.folded}
    every = dict.fromkeys((item.name for item in network.activations), 1.0)
    decisions = plan_quantization(network, every, target, options).decisions
    chosen: set[int] = set()
    idle = []
    names = [_names(network, item, folded.get(item.label)) for item in decisions]
    for pattern in patterns:
        meant = _meaning(pattern, names)
        named = [item for item, own in zip(decisions, names, strict=True) if any(map(meant, own))]
        if not named:
            raise _unknown(pattern, decisions)
        quantized = {item.node for item in named if item.status == "int8"}
        chosen |= quantized
        idle += [] if quantized else [pattern]
    nodes = tuple(item.label for item in decisions if item.node in chosen)
    before = {name: folded[name].layer for name in nodes if name in folded}
    return FloatLayers(nodes, tuple(idle), before)


def _names(network: Network, decision: Decision, folded: FoldedNorm | None) -> frozenset[str]:
    own = (decision.label, *filter(None, network.nodes[decision.node].outputs))
    return frozenset(own if folded is None else (*own, folded.layer, folded.norm, *folded.gone))


def _meaning(pattern: str, names: Iterable[frozenset[str]]) -> Callable[[str], bool]:
    """Which names a pattern means: only itself where something is called so."""
    if any(pattern in own for own in names):
        return lambda name: name == pattern
    return lambda name: fnmatchcase(name, pattern)


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
