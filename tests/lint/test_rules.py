"""Every rule finds the graph it was made for, and leaves its sound neighbour alone."""

from __future__ import annotations

import re

import pytest

from calib.core.lint.engine import lint_model
from calib.core.lint.rule import SEVERITIES, Finding
from calib.core.lint.rules import RULES
from calib.core.plan import TARGETS
from tests.lint.cases import CASES, RANGED, sound


def find(rule: str, graph, **options) -> list[Finding]:
    return list(lint_model(graph, rules=[RULES[rule]], **options))


def test_every_rule_has_a_graph_that_triggers_it_and_one_that_does_not() -> None:
    assert {*CASES, *RANGED} == set(RULES)


@pytest.mark.parametrize("rule", CASES)
def test_a_rule_finds_its_graph_and_leaves_the_other_alone(rule: str) -> None:
    bad, good = CASES[rule]
    found = find(rule, bad())
    assert found
    assert all(item.rule.id == rule and item.places and item.levels for item in found)
    assert all(place.saw for item in found for place in item.places)
    assert find(rule, good()) == []


@pytest.mark.parametrize("rule", RANGED)
def test_a_rule_that_needs_ranges_finds_them(rule: str) -> None:
    graph, bad, good = RANGED[rule]
    assert [item.names for item in find(rule, graph(), ranges=bad)] == [tuple(bad)]
    assert find(rule, graph(), ranges=good) == []
    assert find(rule, graph()) == []


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_says_what_users_need(rule) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule.id)
    assert RULES[rule.id] is rule
    assert rule.levels
    assert set(rule.levels) <= set(TARGETS)
    assert set(rule.levels.values()) <= set(SEVERITIES)
    assert min(len(rule.title), len(rule.why), len(rule.remedy)) >= 15
    assert not rule.title.endswith(".")
    assert rule.why.endswith(".")
    assert any(source.startswith("https://") for source in rule.sources)


def test_a_sound_quantized_network_has_no_finding_but_the_note_on_calibrators() -> None:
    assert [item.rule.id for item in lint_model(sound())] == ["qdq-calibrator"]


def test_no_triggering_graph_breaks_another_rule() -> None:
    for bad, good in CASES.values():
        for graph in (bad(), good()):
            before = graph.SerializeToString()
            lint_model(graph)
            assert graph.SerializeToString() == before
