"""Layers that the user keeps in float: from the patterns given to the nodes meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from calib.core.graph import Network
from calib.core.plan import Decision, PlacementOptions, Target
from calib.errors import UsageError
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.types.gate import few

FLAG = "--keep-float"


@dataclass(frozen=True)
class FloatLayers:
    """What patterns name.

    Attributes:
        nodes: labels of nodes that INT8 could have, in network order.
        idle: patterns that name only nodes that stay in float anyway.
    """

    nodes: tuple[str, ...]
    idle: tuple[str, ...] = ()

    def options(self, options: PlacementOptions = DEFAULTS) -> PlacementOptions:
        """Placement choices that keep these nodes in float."""
        return replace(options, float_nodes=options.float_nodes | set(self.nodes)) if self.nodes else options


def find_float_layers(
    network: Network, patterns: Sequence[str], target: Target, options: PlacementOptions = DEFAULTS
) -> FloatLayers:
    """Find the nodes that patterns name.

    Args:
        network: the float network.
        patterns: names of nodes or of the tensors they make; ``*``, ``?`` and ``[...]`` as in a shell, unless a name is
            spelt just so.
        target: whose placement rules say which nodes INT8 could have.
        options: further placement choices.

    Raises:
        UsageError: a pattern names no node.
    """
    if not patterns:
        return FloatLayers(())
    every = dict.fromkeys((item.name for item in network.activations), 1.0)
    decisions = plan_quantization(network, every, target, options).decisions
    chosen: set[int] = set()
    idle = []
    for pattern in patterns:
        named = [item for item in decisions if _is_named(network, item, pattern)]
        if not named:
            raise _unknown(pattern, decisions)
        quantized = {item.node for item in named if item.status == "int8"}
        chosen |= quantized
        idle += [] if quantized else [pattern]
    return FloatLayers(tuple(item.label for item in decisions if item.node in chosen), tuple(idle))


def _is_named(network: Network, decision: Decision, pattern: str) -> bool:
    names = {decision.label, *filter(None, network.nodes[decision.node].outputs)}
    return pattern in names or any(fnmatchcase(name, pattern) for name in names)


def _unknown(pattern: str, decisions: Iterable[Decision]) -> UsageError:
    layers = [item.label for item in decisions if item.status == "int8"]
    return UsageError(
        f"{FLAG} {pattern}",
        expected="a pattern of nodes, or of tensors that they make",
        got="none that it names",
        remedy=f"of {len(layers)} layers that can run in INT8 the names are {few(layers)}; quote * for the shell",
    )
