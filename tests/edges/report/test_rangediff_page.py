"""The page and the picture of two files of ranges: names that tell, charts of their own for narrow screens."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from calib.edges.report.rangediff import DiffSubject, diff_page, diff_svg, summary
from calib.stages.rangediff import diff_tables
from tests.core.formats.tables import table

SUBJECT = DiffSubject("a.cache", "b.cache")
NAMES = [f"/model.{block}/m.{index}/cv1/act/Mul_output_0" for block in range(4) for index in range(3)]


def page(first: dict[str, float], second: dict[str, float]) -> str:
    return diff_page(diff_tables(table(first), table(second)), SUBJECT).decode()


def test_the_largest_differences_have_names_that_tell_them_apart():
    text = page(dict.fromkeys(NAMES, 0.1), {name: 0.1 * 2**place for place, name in enumerate(NAMES)})
    charts = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    ids = re.findall(r'id="([^"]+)"', text)
    assert len(charts) >= 4
    assert len(ids) == len(set(ids))
    for chart in [item for item in charts if "intervals" in item]:
        shown = re.findall(r">([^<]*act/Mul)<", chart)
        assert len(shown) == len(set(shown)) == len(NAMES) - 1
    assert "wide-only" in text
    assert "narrow-only" in text


@pytest.mark.parametrize(
    ("first", "second", "told"),
    [
        ({"a": 1.0}, {"a": 1.0}, "The same 1 range."),
        (
            {"a": 1.0, "b": 2.0},
            {"a": 1.0, "b": 4.0},
            "2 tensors in both, 1 of them equal; 1 differs by more",
        ),
        ({"a": 1.0}, {"b": 9.0}, "0 tensors in both; 1 only in the first; 1 only in the second."),
        ({"a": float("inf")}, {"a": 1.0}, "1 tensor in both, 0 of them equal; 1 differs"),
        ({"a<b>&\x1b": 0.0}, {"a<b>&\x1b": 1.0}, "1 tensor in both"),
    ],
)
def test_any_two_files_can_be_drawn_and_summed_up(first, second, told):
    found = diff_tables(table(first), table(second))
    assert summary(found).startswith(told)
    assert "\x1b" not in page(first, second)
    assert ElementTree.fromstring(diff_svg(found, SUBJECT)).tag.endswith("svg")
