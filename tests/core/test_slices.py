"""Slices and the expressions that make them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.core.sliceexpr import evaluate_expression
from calib.core.slices import MOST_VALUES, dark_pixels, lowest_quarter, make_slices, split_slice_option
from calib.errors import UsageError
from calib.types.scores import ScoreTable


def table(**columns: object) -> ScoreTable:
    values = {
        "luma_mean": [10.0, 50.0, 90.0, 130.0, 170.0, 210.0, 220.0, 230.0],
        "small_share": [0.0, 0.0, 0.0, 0.1, 0.2, 0.3, 0.4, np.nan],
        "small_count": [0, 0, 0, 1, 2, 3, 4, 0],
        "edge_density": [0.5] * 8,
        "class_share": [[0.5, 0.0]] * 4 + [[0.1, 0.9], [0.2, 0.1], [0.3, 0.2], [0.4, 0.3]],
        "bright": [True, False] * 4,
    } | columns
    arrays = {name: np.array(value) for name, value in values.items()}
    return ScoreTable(tuple("abcdefgh"), arrays, ("Car", "Traffic light"), {"dark_luma": 32.0})


GROUPS = [{"sequence": "dusk" if place < 3 else "day", "frame": str(place)} for place in range(8)]


def rows(expression: str, **columns: object) -> list[int]:
    return np.flatnonzero(evaluate_expression(expression, table(**columns), GROUPS, "--slice s")).tolist()


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("luma_mean<60", [0, 1]),
        ("mean_luma<60", [0, 1]),  # the words of a column's name in another order
        ("luma_mean < 60 or luma_mean >= 220", [0, 1, 6, 7]),
        ("40 < luma_mean <= 130", [1, 2, 3]),
        ("60 > luma_mean", [0, 1]),
        ("not luma_mean<60 and small_count>=3", [5, 6]),
        ("not (luma_mean<60 or small_count>=3)", [2, 3, 4, 7]),
        ("luma_mean<60 | small_count=4", [0, 1, 6]),
        ("! (luma_mean<200) & luma_mean != 210", [6, 7]),
        ("class_share[Traffic light] > 10%", [4, 6, 7]),
        ("class_share['Car']==0.5", [0, 1, 2, 3]),
        ("small_share >= 0", [0, 1, 2, 3, 4, 5, 6]),  # NaN never holds
        ("small_share != 0.1", [0, 1, 2, 4, 5, 6]),
        ("sequence = 'dusk'", [0, 1, 2]),
        ('sequence != "dusk" and luma_mean > 1.5e2', [4, 5, 6, 7]),
        ("bright", [0, 2, 4, 6]),
        ("not bright and luma_mean>100", [3, 5, 7]),
        ("frame = 3", [3]),
        ("luma_mean > -1", [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_expressions(expression: str, expected: list[int]) -> None:
    assert rows(expression) == expected


@pytest.mark.parametrize(
    ("expression", "place", "hint"),
    [
        ("luma_maen<60", "character 1", "did you mean 'luma_mean'"),
        ("luma_mean<", "character 11", ""),
        ("luma_mean", "character 10", ""),
        ("(luma_mean<60", "character 14", ""),
        ("luma_mean<60)", "character 13", ""),
        ("luma_mean<60 and", "character 17", ""),
        ("luma_mean<60 luma_mean>3", "character 14", ""),
        ("class_share<0.1", "", "CLASS"),
        ("class_share[Cra]<0.1", "", "did you mean 'Car'"),
        ("luma_mean[Car]<0.1", "", "without brackets"),
        ("luma_mean<'dark'", "", ""),
        ("luma_mean ~ 3", "character 11", ""),
        ("__import__('os').system('true')", "", ""),
        ("luma_mean<60; 1", "character 13", ""),
        ("", "character 1", ""),
    ],
)
def test_mistakes_are_shown_with_their_place(expression: str, place: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        rows(expression)
    assert place in caught.value.place
    assert hint in str(caught.value)


@given(st.text(alphabet="abl<>=()&|! 0123456789.'\"[]_~%andor", max_size=30))
def test_any_text_is_a_mask_or_a_usage_error(text: str) -> None:
    try:
        mask = evaluate_expression(text, table(), GROUPS, "--slice s")
    except UsageError:
        return
    assert mask.shape == (8,)
    assert mask.dtype == bool


def test_every_kind_of_slice_is_made() -> None:
    slices, notes = make_slices(table(), GROUPS, {"night": "luma_mean<60"})
    found = {item.name: np.flatnonzero(item.mask).tolist() for item in slices}
    assert found == {
        "dark": [0, 1],
        "small-objects": [5, 6],
        "edges": [0, 1, 2, 3, 4, 5, 6, 7],
        "rare:Car": [4, 5],
        "rare:Traffic light": [5],
        "sequence=day": [3, 4, 5, 6, 7],
        "sequence=dusk": [0, 1, 2],
        "night": [0, 1],
    }  # fmt: skip
    assert notes == ("manifest column frame: 8 values, no slices of it; --slice can still use it",)
    assert "at most 50" in next(item.rule for item in slices if item.name == "dark")


def test_an_empty_slice_is_left_out_and_said() -> None:
    slices, notes = make_slices(table(small_share=[0.0] * 8), [{}] * 8, {"none": "luma_mean<0"})
    assert {"none", "small-objects"}.isdisjoint(item.name for item in slices)
    assert any(note.startswith("slice none: no image fits") for note in notes)


def test_a_column_of_many_values_makes_no_slices() -> None:
    many = MOST_VALUES + 8
    wide = table(**{name: np.resize(column, (many, *column.shape[1:])) for name, column in table().columns.items()})
    wide = ScoreTable(tuple(map(str, range(many))), wide.columns, wide.class_names, wide.thresholds)
    slices, notes = make_slices(wide, [{"frame": str(place)} for place in range(many)], {"one": "frame='7'"})
    assert not any(item.name.startswith("frame=") for item in slices)
    assert next(item for item in slices if item.name == "one").mask.sum() == 1
    assert any("frame: 40 values" in note for note in notes)


@pytest.mark.parametrize("name", ["dark", "dark-pixels", "rare:Car", "sequence=day"])
def test_names_that_are_taken_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="choose another name"):
        make_slices(table(), GROUPS, {name: "luma_mean<60"})


@pytest.mark.parametrize("text", ["night", "=luma_mean<60", "night=", "luma_mean<60", "luma_mean<=60"])
def test_a_slice_needs_a_name_and_an_expression(text: str) -> None:
    with pytest.raises(UsageError, match="NAME=EXPRESSION"):
        split_slice_option(text)


def test_the_expression_may_hold_equals_signs() -> None:
    assert split_slice_option("dusk=sequence='0001TP'") == ("dusk", "sequence='0001TP'")


def test_a_quarter_is_rounded_up_holds_ties_and_no_nan() -> None:
    mask, cut = lowest_quarter(np.array([3.0, np.nan, 1.0, 1.0, 2.0]))
    assert mask.tolist() == [False, False, True, True, False]
    assert cut == 1.0
    assert not lowest_quarter(np.array([np.nan]))[0].any()


def test_dark_pixels_state_their_threshold() -> None:
    assert "below 32 of 255" in dark_pixels(table(), np.ones(8, bool)).rule
