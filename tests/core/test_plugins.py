"""Plugin specs: parsing, look-up, binding, description."""

from __future__ import annotations

import functools
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from calib.core.plugins import bind_arguments, describe_parameters, describe_plugin, find_plugin, parse_spec
from calib.errors import UsageError
from calib.types.parameters import Parameter, PluginSpec

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-_0123456789", min_size=1)
VALUES = st.text("abcdefghijklmnopqrstuvwxyz.-+=:/0123456789", min_size=1)


def enrich(
    table: object,
    n: int,
    *,
    fraction: Annotated[float, Parameter("share of the set that is enriched", 0, 1)] = 0.5,
    bins: Annotated[int, Parameter("number of bins", 1)] = 8,
    max_gap: Annotated[int | None, Parameter("largest gap")] = None,
    equalize: bool = False,
    light: Literal["day", "dusk"] = "day",
) -> None:
    """Take the dark images first.

    More words that a list does not show.
    """
    del table, n, fraction, bins, max_gap, equalize, light


def mixed(table: object, n: int, **parts: Annotated[float, Parameter("share of the set", 0, 1)]) -> None:
    """Mix samplers."""
    del table, n, parts


def strict(table: object, amount: int) -> None:
    del table, amount


def bind(text: str, plugin: Any = enrich, leading: int = 2) -> dict[str, Any]:
    return bind_arguments("sampler", parse_spec(text), plugin, leading)


@given(NAMES, st.dictionaries(NAMES, VALUES, max_size=4))
def test_rendering_a_spec_and_parsing_it_gives_the_spec_back(name: str, arguments: dict[str, str]) -> None:
    spec = PluginSpec(name, tuple(arguments.items()))
    assert parse_spec(str(spec)) == spec


def test_blanks_around_parts_are_dropped() -> None:
    assert parse_spec(" mix : a = 1 , b = 2 ") == PluginSpec("mix", (("a", "1"), ("b", "2")))


@pytest.mark.parametrize("text", ["", ":a=1", "mix:a", "mix:=1", "mix:a=", "mix:a=1,a=2"])
def test_a_malformed_spec_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_spec(text)
    assert repr(text) in caught.value.place


def test_an_unknown_name_lists_the_plugins_and_suggests_the_closest() -> None:
    with pytest.raises(UsageError) as caught:
        find_plugin("sampler", "Dark_Region", {"random": 1, "dark-regions": 2})
    assert caught.value.expected == "one of random, dark-regions"
    assert "did you mean 'dark-regions'?" in caught.value.remedy
    assert "`calib samplers`" in caught.value.remedy


def test_defaults_are_filled_in_and_text_becomes_the_annotated_type() -> None:
    assert bind("x") == {"fraction": 0.5, "bins": 8, "max_gap": None, "equalize": False, "light": "day"}
    assert bind("x:fraction=1,bins=2,max-gap=3,equalize=yes,light=dusk") == {
        "fraction": 1.0,
        "bins": 2,
        "max_gap": 3,
        "equalize": True,
        "light": "dusk",
    }
    assert bind("x:max_gap=None")["max_gap"] is None


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("fraction=1.01", "a number from 0 to 1"),
        ("fraction=nan", "a number from 0 to 1"),
        ("fraction=-inf", "a number from 0 to 1"),
        ("bins=0", "a whole number of at least 1"),
        ("bins=1.5", "a whole number of at least 1"),
        ("max_gap=wide", "a whole number or none"),
        ("equalize=maybe", "true or false"),
        ("light=night", "one of day, dusk"),
    ],
)
def test_a_value_out_of_bounds_names_the_argument_and_what_it_takes(argument: str, expected: str) -> None:
    with pytest.raises(UsageError) as caught:
        bind(f"x:{argument}")
    assert caught.value.expected == expected
    assert repr(argument.partition("=")[0]) in caught.value.place


def test_a_huge_whole_number_is_compared_exactly() -> None:
    assert bind("x:bins=1" + "0" * 400)["bins"] == 10**400


def test_an_unknown_argument_is_named_with_a_suggestion() -> None:
    with pytest.raises(UsageError, match="did you mean 'fraction'"):
        bind("x:fractoin=0.5")


def test_an_argument_given_in_both_spellings_is_refused() -> None:
    with pytest.raises(UsageError, match="one value for max_gap"):
        bind("x:max-gap=1,max_gap=2")


def test_further_keys_keep_their_spelling() -> None:
    assert bind("mix:dark-regions=0.3,random=0.7", mixed) == {"dark-regions": 0.3, "random": 0.7}


@pytest.mark.parametrize("reserved", ["table", "n"])
def test_what_the_workbench_passes_itself_cannot_be_given(reserved: str) -> None:
    with pytest.raises(UsageError):
        bind(f"mix:{reserved}=0.3", mixed)
    with pytest.raises(UsageError):
        bind(f"x:{reserved}=0.3")


def test_a_missing_argument_is_named() -> None:
    with pytest.raises(UsageError, match="a value for amount"):
        bind("x", strict, 1)
    assert bind("x:amount=3", strict, 1) == {"amount": 3}


def test_a_partial_and_a_callable_object_are_plugins_too() -> None:
    class Scaled:
        """Scale."""

        def __call__(self, table: object, factor: float = 2.0) -> None:
            del table, factor

    assert [info.name for info in describe_parameters(Scaled(), 1)] == ["factor"]
    halved = functools.partial(enrich, fraction=0.25)
    assert bind("x", halved)["fraction"] == 0.25


def test_annotations_that_cannot_be_resolved_are_one_error() -> None:
    def plugin(table: Missing, share: float = 1.0) -> None:  # type: ignore[name-defined]  # noqa: F821
        del table, share

    with pytest.raises(UsageError, match="Missing"):
        describe_parameters(plugin, 1)


def test_something_that_is_no_function_is_one_error() -> None:
    with pytest.raises(UsageError, match="signature"):
        describe_parameters(3, 1)  # type: ignore[arg-type]


def test_the_description_holds_what_a_list_shows() -> None:
    document = describe_plugin("dark", enrich, 2)
    assert document["summary"] == "Take the dark images first."
    fraction, *_, light = document["parameters"]
    assert fraction == {
        "name": "fraction",
        "type": "float",
        "accepts": "a number from 0 to 1",
        "required": False,
        "default": 0.5,
        "minimum": 0,
        "maximum": 1,
        "choices": [],
        "variadic": False,
        "help": "share of the set that is enriched",
    }
    assert light["choices"] == ["day", "dusk"]


def test_a_required_and_a_variadic_parameter_are_told_apart() -> None:
    (amount,) = describe_plugin("strict", strict, 1)["parameters"]
    (parts,) = describe_plugin("mix", mixed, 2)["parameters"]
    assert amount["required"]
    assert not parts["required"]
    assert parts["variadic"]
