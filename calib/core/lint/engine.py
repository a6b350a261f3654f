"""Apply the rules to a network and merge what they see into findings, worst first."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx
from onnx import inliner

from calib.core.graph import Network, analyse
from calib.core.lint.rule import SEVERITIES, Finding, Rule, Severity, Sighting
from calib.core.lint.rules import RULES
from calib.core.lint.subject import Subject
from calib.core.plan import TARGETS, Target


def lint_model(
    model: onnx.ModelProto,
    network: Network | None = None,
    targets: Sequence[Target] = TARGETS,
    *,
    ranges: Mapping[str, float] | None = None,
    rules: Collection[Rule] | None = None,
) -> tuple[Finding, ...]:
    """Say what in a network will hurt on its targets. Pure: the model is not changed, nothing is run.

    Args:
        model: external data loaded. Local functions are inlined first.
        network: its analysis, where it is at hand; ignored for a model with local functions.
        targets: what will run it.
        ranges: observed amax by tensor name, for the rules that need them; a Q/DQ network carries its own.
        rules: rules to apply, all of :data:`calib.core.lint.rules.RULES` by default.

    Returns:
        Findings, errors first, in the rules' order within a severity; each lists its places in network order.

    Raises:
        ModelError: the graph is no graph.
    """
    whole = inlined(model)
    analysis = network if network is not None and whole is model else analyse(whole)
    subject = Subject(whole, analysis, ranges)
    found = [item for rule in rules or RULES.values() for item in _findings(rule, subject, targets)]
    return tuple(sorted(found, key=lambda item: SEVERITIES.index(item.severity)))


def inlined(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline local functions, so that rules see every node; a model without functions comes back as it is."""
    if not model.functions:
        return model
    try:
        return inliner.inline_local_functions(model)
    except Exception:  # noqa: BLE001  the inliner raises all kinds for models it cannot serialise
        return model


def _findings(rule: Rule, subject: Subject, targets: Sequence[Target]) -> Iterator[Finding]:
    """Group a rule's places by severity, so that one finding has one."""
    groups: dict[tuple[tuple[Target, Severity], ...], list[Sighting]] = {}
    for place in rule.check(subject):
        levels = rule.levels if place.levels is None else place.levels
        concerned = {target: levels[target] for target in TARGETS if target in targets and target in levels}
        if concerned:
            groups.setdefault(tuple(concerned.items()), []).append(place)
    for key, places in groups.items():
        yield Finding(rule, dict(key), tuple(_unique(places)))


def _unique(places: Sequence[Sighting]) -> Iterator[Sighting]:
    seen: set[tuple[str, str]] = set()
    for place in places:
        if (place.name, place.saw) not in seen:
            seen.add((place.name, place.saw))
            yield place
