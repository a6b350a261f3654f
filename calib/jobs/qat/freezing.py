"""Weights that stay as they are, chosen by pattern."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from calib.errors import UsageError
from calib.types.gate import few

if TYPE_CHECKING:
    from calib.edges.qat.module import OnnxModule


def freeze_weights(network: OnnxModule, patterns: Sequence[str]) -> None:
    """Keep weights as they are that a pattern names, or whose nodes it names.

    Args:
        network: before its training.
        patterns: with ``*`` and ``?``.

    Raises:
        UsageError: a pattern names nothing.
    """
    readers = _readers(network)
    for pattern in patterns:
        named = [name for name, labels in readers.items() if any(fnmatchcase(label, pattern) for label in labels)]
        if not named:
            shown = sorted({label for labels in readers.values() for label in labels})
            raise UsageError(
                f"--freeze {pattern}",
                expected="a pattern of weights or nodes",
                got="none that it names",
                remedy=f"names are {few(shown)}",
            )
        for name in named:
            network.weights[name].requires_grad_(False)


def _readers(network: OnnxModule) -> dict[str, set[str]]:
    readers: dict[str, set[str]] = {name: {name} for name in network.weights.names()}
    for node in network.network.nodes:
        for name in node.inputs:
            readers.get(name, set()).add(node.label)
    return readers
