"""The gate: what it parses, refuses, and lets pass."""

from __future__ import annotations

import pytest

from calib.core.maxdrop import Limit, check_names, judge, order_verdicts, parse_max_drop
from calib.errors import UsageError


def test_the_documented_form() -> None:
    limits = parse_max_drop("miou=0.3,class:Pedestrian=1.0,slice:dark=0.5")
    assert limits == (Limit("miou", "", 0.3), Limit("class", "Pedestrian", 1.0), Limit("slice", "dark", 0.5))
    assert ",".join(map(str, limits)) == "miou=0.3,class:Pedestrian=1,slice:dark=0.5"


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("class:bus, autobus=2", Limit("class", "bus, autobus", 2.0)),
        ("slice:sequence=0001TP=0.5", Limit("slice", "sequence=0001TP", 0.5)),
        ("slice:rare:Car=1e-1", Limit("slice", "rare:Car", 0.1)),
        ("class:a=b, c=0", Limit("class", "a=b, c", 0.0)),
    ],
)
def test_names_may_hold_commas_colons_and_equals_signs(text: str, limit: Limit) -> None:
    assert parse_max_drop(f"miou=1,{text}")[1] == limit


@pytest.mark.parametrize(
    "text",
    ["", "miou", "miou=", "miou=-1", "miou=nan", "miou=inf", "class:=1", "iou=1", "miou=1,miou=2", "miou=1,,", "0.3"],
)
def test_malformed_limits_are_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_max_drop(text)
    assert caught.value.place == "--max-drop"
    assert "miou=0.3,class:Pedestrian=1.0" in caught.value.remedy


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'Pedestrian'"):
        check_names(parse_max_drop("class:Pedestrain=1"), ["Car", "Pedestrian"], [])
    with pytest.raises(UsageError, match=r"slice of this evaluation: dark, edges"):
        check_names(parse_max_drop("slice:night=1"), [], ["dark", "edges"])
    check_names(parse_max_drop("miou=1,class:Car=1,slice:dark=1"), ["Car"], ["dark"])


def test_a_loss_beyond_the_limit_fails_and_one_on_it_passes() -> None:
    limit = Limit("miou", "", 0.3)
    assert not judge("m", limit, -0.31, (-0.5, -0.1)).passed
    assert judge("m", limit, -0.3, (-0.4, -0.2)).passed
    assert judge("m", limit, 5.0, (4.0, 6.0)).drop == -5.0


def test_the_interval_says_how_sure_a_verdict_is() -> None:
    limit = Limit("miou", "", 0.3)
    assert "reaches beyond" in judge("m", limit, -0.2, (-0.4, 0.0)).reason
    assert "does not rule out" in judge("m", limit, -0.4, (-0.6, -0.2)).reason
    assert judge("m", limit, -0.1, (-0.2, 0.0)).reason == ""
    assert judge("m", limit, -0.1, (-0.2, 0.0)).ci95 == (0.0, 0.2)


def test_judged_by_the_interval_only_a_proven_pass_passes() -> None:
    limit = Limit("miou", "", 0.3)
    assert not judge("m", limit, -0.2, (-0.4, 0.0), by_interval=True).passed
    assert judge("m", limit, -0.1, (-0.2, 0.0), by_interval=True).passed
    assert not judge("m", limit, 0.5, None, by_interval=True).passed


def test_what_cannot_be_judged_does_not_pass() -> None:
    verdict = judge("m", Limit("class", "Car", 9.0), None, None)
    assert not verdict.passed
    assert "no labelled pixel" in verdict.reason


def test_failing_limits_come_first_the_furthest_over_first() -> None:
    drops = {"a": -0.1, "b": -0.5, "c": None, "d": -2.0, "e": 0.4}
    verdicts = [judge(name, Limit("miou", "", 0.3), drop, None) for name, drop in drops.items()]
    assert [verdict.model for verdict in order_verdicts(verdicts)] == ["c", "d", "b", "a", "e"]
