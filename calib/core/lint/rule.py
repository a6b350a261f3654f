"""What a lint rule is, and what it answers: places where a graph will hurt, with the reason and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from calib.core.graph import Node
from calib.core.plan import TARGETS, Target

if TYPE_CHECKING:
    from calib.core.lint.subject import Subject

Severity = Literal["error", "warning", "note"]
SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""Worst first. ``error``: the target refuses the network or computes something else; ``warning``: it is likely to
cost accuracy or speed; ``note``: worth knowing before a decision."""

PlaceKind = Literal["node", "tensor", "model"]
Levels = Mapping[Target, Severity]


@dataclass(frozen=True)
class Sighting:
    """One place where a rule applies.

    Attributes:
        name: label of the node or name of the tensor; empty for the network as a whole.
        saw: the values that matter there, for people.
        place: what ``name`` names.
        levels: severities of this place where they differ from the rule's; empty means the rule's.
    """

    name: str
    saw: str
    place: PlaceKind = "node"
    levels: Levels | None = None


@dataclass(frozen=True)
class Rule:
    """One thing that can be wrong with a network.

    Attributes:
        id: stable name, ``kebab-case``.
        title: one line that holds for every place it finds.
        why: what goes wrong, and who is right by the ONNX specification where runtimes disagree.
        remedy: what to do.
        sources: where the facts come from: specification, documentation, public reports.
        levels: severity by target; a target that is missing is not concerned.
        check: lists the places.
    """

    id: str
    title: str
    why: str
    remedy: str
    sources: tuple[str, ...]
    levels: Levels
    check: Callable[[Subject], Iterable[Sighting]]


@dataclass(frozen=True)
class Finding:
    """All places of one kind that one rule found.

    Attributes:
        rule: the rule.
        levels: severity by target, of the targets asked for.
        places: where, in network order.
    """

    rule: Rule
    levels: Levels
    places: tuple[Sighting, ...]

    @property
    def severity(self) -> Severity:
        """The worst severity among the targets."""
        return min(self.levels.values(), key=SEVERITIES.index)

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets it concerns."""
        return tuple(target for target in TARGETS if target in self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of nodes and tensors, each once."""
        return tuple(dict.fromkeys(item.name for item in self.places if item.name))


def levels(*, trt: Severity | None = None, ort: Severity | None = None) -> Levels:
    """Give both TensorRT targets one severity, and ONNX Runtime another; None leaves them out."""
    found: dict[Target, Severity] = {}
    if trt is not None:
        found.update({"trt10": trt, "trt11": trt})
    if ort is not None:
        found["ort"] = ort
    return found


def everywhere(severity: Severity) -> Levels:
    """Give every target the same severity."""
    return dict.fromkeys(TARGETS, severity)


def at(node: Node, saw: str, levels: Levels | None = None) -> Sighting:
    """Report a node."""
    return Sighting(node.label, saw, "node", levels)


def on(tensor: str, saw: str, levels: Levels | None = None) -> Sighting:
    """Report a tensor."""
    return Sighting(tensor, saw, "tensor", levels)


def whole(saw: str, levels: Levels | None = None) -> Sighting:
    """Report the network as a whole."""
    return Sighting("", saw, "model", levels)
