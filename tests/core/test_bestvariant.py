"""Which variant to release."""

from __future__ import annotations

import pytest

from calib.core.bestvariant import RULE, VariantScore, choose_variant


def score(name: str, delta: float, half: float | None, **slices: float | None) -> VariantScore:
    return VariantScore(name, delta, None if half is None else (delta - half, delta + half), slices)


def test_the_least_loss_on_the_worst_slice_among_those_not_told_apart() -> None:
    choice = choose_variant(
        [
            score("minmax", -0.2, 0.2, dark=-3.0, day=0.5),
            score("percentile", -0.3, 0.2, dark=-0.8, day=0.4),
            score("entropy", -2.0, 0.3, dark=-0.1, day=-0.1),
        ]
    )
    assert (choice.name, choice.best, choice.rule) == ("percentile", "minmax", RULE)
    assert [item.contender for item in choice.judged] == [True, True, False]
    assert [item.worst_slice for item in choice.judged] == ["dark", "dark", "dark"]
    assert "worst slice is 'dark', with a loss of 0.80 points" in choice.words
    assert "minmax" in choice.words


def test_without_intervals_only_equals_are_rivals() -> None:
    choice = choose_variant([score("a", -0.2, None, dark=-5.0), score("b", -0.21, None, dark=0.0)])
    assert choice.name == "a"
    assert choice.judged[1].contender is False


def test_of_equals_the_first_wins_and_a_gain_is_told_as_one() -> None:
    choice = choose_variant([score("a", 0.1, 0.1, dark=0.2), score("b", 0.1, 0.1, dark=0.2)])
    assert choice.name == "a"
    assert "worst slice is 'dark', with a gain of 0.20 points" in choice.words


def test_slices_that_cannot_be_judged_are_left_out() -> None:
    choice = choose_variant([score("a", -1.0, 0.5, dark=None), score("b", -0.9, 0.5, dark=None, day=-3.0)])
    assert choice.name == "a"
    assert (choice.judged[0].worst_slice, choice.judged[0].worst_delta) == (None, -1.0)
    assert choice.words.startswith("a: a loss of 1.00 points on the whole split.")


def test_nothing_to_choose_from() -> None:
    with pytest.raises(ValueError, match="finite"):
        choose_variant([])
    with pytest.raises(ValueError, match="finite"):
        choose_variant([score("a", float("nan"), None)])
