"""Two files of ranges: what moved, in bits, and which tensor is which when names changed."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.stages.rangediff import diff_tables, ratio_in_bits
from calib.types.rangetable import RangeTable, TensorRange


def table(order: str = "network", **amax: float) -> RangeTable:
    return RangeTable({name: TensorRange(name, value) for name, value in amax.items()}, "t", "t", order=order)


@pytest.mark.parametrize(
    ("before", "after", "bits"),
    [(1, 2, 1.0), (4, 1, -2.0), (0, 0, 0.0), (0, 1, math.inf), (1, 0, -math.inf), (math.inf, math.inf, 0.0)],
)
def test_ratios_are_in_bits(before, after, bits):
    assert ratio_in_bits(before, after) == bits
    assert math.isnan(ratio_in_bits(1.0, math.inf))
    assert math.isnan(ratio_in_bits(-1.0, 1.0))


def test_common_tensors_come_largest_difference_first():
    found = diff_tables(table(a=1.0, b=1.0, c=1.0), table(a=1.0, b=8.0, c=0.5, d=1e9))
    assert [(item.name, item.bits) for item in found.by_size] == [("b", 3.0), ("c", -1.0), ("a", 0.0)]
    assert (found.only_first, found.only_second, found.identical) == ((), ("d",), False)
    assert diff_tables(table(a=1.0), table(a=1.0)).identical


def test_renamed_tensors_are_found_by_equal_values_between_common_names():
    first = table(x=1.0, a=3.0, b=5.0, y=2.0, c=7.0)
    second = table(x=1.0, p=3.0, new=100.0, q=5.0, y=2.0, r=7.0)
    found = {item.name: (item.other, item.how) for item in diff_tables(first, second).changes}
    assert found == {
        "x": ("x", "name"),
        "a": ("p", "value"),
        "b": ("q", "value"),
        "y": ("y", "name"),
        "c": ("r", "value"),
    }


def test_renamed_tensors_with_other_values_are_found_by_order():
    values = [1.0, 0.1, 30.0, 2.0, 500.0, 0.02, 8.0]
    first = table(**{f"a{place}": value for place, value in enumerate(values)})
    second = table(**{f"b{place}": value * 1.1 for place, value in enumerate(values)})
    found = diff_tables(first, second)
    assert [(item.name, item.other, item.how) for item in found.changes] == [
        (f"a{place}", f"b{place}", "order") for place in range(len(values))
    ]
    assert all(abs(item.bits - math.log2(1.1)) < 1e-9 for item in found.changes)


def test_other_networks_are_not_taken_for_renamed_ones():
    first = table(**{f"a{place}": 10.0 ** (place % 7 - 3) for place in range(20)})
    second = table(**{f"b{place}": 10.0 ** ((place * 5 + 3) % 11 - 5) * 1.7 for place in range(20)})
    found = diff_tables(first, second)
    assert (found.changes, len(found.only_first), len(found.only_second)) == ((), 20, 20)


def test_sorted_tables_are_matched_by_unique_values_alone():
    found = diff_tables(table("sorted", a=3.0, b=1.0, c=1.0), table("sorted", p=1.0, q=3.0))
    assert [(item.name, item.other, item.how) for item in found.changes] == [("a", "q", "value")]


def test_headers_are_compared():
    first, second = table(a=1.0), table(a=1.0)
    one = RangeTable(first.ranges, "t", "t", metadata={"version": "8.6.1", "algorithm": "MinMaxCalibration"})
    two = RangeTable(second.ranges, "t", "t", metadata={"version": None, "algorithm": "MinMaxCalibration"})
    assert diff_tables(one, two).headers == (("version", "8.6.1", "not stated"),)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf, math.nan, 7.5]), max_size=30),
    st.lists(st.sampled_from([0.0, 0.5, 1.0, 2.0, math.inf, math.nan, 7.5]), max_size=30),
)
def test_no_tensor_is_matched_twice_or_lost(first, second):
    ours = table(**{f"a{place}": value for place, value in enumerate(first)})
    theirs = table(**{f"{'a' if place % 3 else 'b'}{place}": value for place, value in enumerate(second)})
    found = diff_tables(ours, theirs)
    assert sorted([item.name for item in found.changes] + list(found.only_first)) == sorted(ours.ranges)
    assert sorted([item.other for item in found.changes] + list(found.only_second)) == sorted(theirs.ranges)
