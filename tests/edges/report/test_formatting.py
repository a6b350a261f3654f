from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.edges.report import formatting


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 %"),
        (1.0, "100 %"),
        (0.5, "50 %"),
        (0.9999, "99.99 %"),
        (0.99999999, ">99.9999 %"),
        (1e-9, "<0.0001 %"),
        (0.000123, "0.0123 %"),
        (0.28204, "28.2 %"),
        (None, "–"),
        (math.nan, "–"),
        (-0.25, "-25 %"),
    ],
)
def test_share(value: float | None, text: str) -> None:
    assert formatting.share(value).replace("\u202f", " ") == text


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_a_share_between_none_and_all_reads_as_neither(value: float) -> None:
    assert formatting.share(value).replace("\u202f", " ") not in {"0 %", "100 %"}


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.00509, 0.0043, 0.0, None], ["0.509 %", "0.430 %", "0 %", "–"]),
        ([0.0123, 0.000043], ["1.23 %", "<0.01 %"]),
        ([0.2, 0.012345], ["20.0 %", "1.2 %"]),
        ([0.009996, 0.00001], ["1.00 %", "<0.01 %"]),
        ([1.0, math.nan], ["100.0 %", "–"]),
        ([None], ["–"]),
        ([], []),
    ],
)
def test_shares_of_a_column_have_the_same_decimals(values: list[float | None], texts: list[str]) -> None:
    assert [text.replace("\u202f", " ") for text in formatting.shares(values)] == texts


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (0.001, "0"), (-0.001, "0"), (1.005, "+1.00"), (-2.5, "-2.50"), (math.inf, "–")]
)
def test_bits(value: float, text: str) -> None:
    assert formatting.bits(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (18_730_112, "18.7 MB"), (999_700, "1 MB"), (5 * 10**15, "5e+03 TB")],
)
def test_file_size(size: int, text: str) -> None:
    assert formatting.file_size(size).replace("\u202f", " ") == text


def test_listed_names_the_first_and_counts_the_rest() -> None:
    assert formatting.listed([]) == ""
    assert formatting.listed(["a"]) == "a"
    assert formatting.listed(["a", "b", "c"]) == "a, b and c"
    assert formatting.listed(list("abcdef")) == "a, b, c, d and 2 more"


@given(st.text())
def test_visible_text_encodes_and_keeps_what_can_be_shown(text: str) -> None:
    shown = formatting.visible(text)
    shown.encode("utf-8")
    assert not any(ord(letter) < 32 and letter not in "\t\n" for letter in shown)
    assert formatting.visible(shown) == shown


def test_number_writes_integers_in_full_and_floats_short() -> None:
    assert formatting.number(1234567) == "1\u202f234\u202f567"
    assert formatting.number(0.000123456) == "0.0001235"
    assert formatting.number(math.inf) == "–"
