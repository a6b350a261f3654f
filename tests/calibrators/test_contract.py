"""What every calibrator must hold, built-in or registered through the entry-point group ``calib.calibrators``."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calib.core.histogram import collect_statistics, merge_all
from calib.core.plugins import bind_arguments, describe_parameters, parse_spec
from calib.edges.plugins import all_calibrators
from calib.errors import UsageError
from calib.types.parameters import PluginSpec
from calib.types.statistics import Calibrator, DynamicRange, TensorStatistics
from tests.calibrators import reference

Floats = NDArray[np.float32]
REGISTRY = all_calibrators()
every_calibrator = pytest.mark.parametrize(("name", "calibrator"), REGISTRY.items(), ids=list(REGISTRY))

CASES: dict[str, Floats] = {
    **{kind: reference.samples(kind, 4_000, 1).reshape(4, 5, 200) for kind in (*reference.KINDS, "high only")},
    "negative": -np.abs(reference.samples("laplace", 4_000, 2)).reshape(4, 5, 200) - np.float32(0.5),
    "all zero": np.zeros((2, 3, 10), np.float32),
    "minus zero": np.full((2, 3, 10), -0.0, np.float32),
    "constant": np.full((2, 3, 10), 2.5, np.float32),
    "constant negative": np.full((2, 3, 10), -3.7, np.float32),
    "one value": np.full((1, 1, 1), 0.3, np.float32),
    "tiny": np.full((1, 2, 3), 1e-44, np.float32),
    "huge": np.array([[[3e38, -1.0, 0.0]]], np.float32),
    "one live channel": np.stack([np.zeros(50), np.linspace(-1, 4, 50)])[None].astype(np.float32),
    "single outlier in zeros": np.concatenate([np.zeros(999), [7.0]]).reshape(1, 1, -1).astype(np.float32),
    "not finite": np.array([[[np.nan, 1.0, np.inf, -2.0]]], np.float32),
}
every_case = pytest.mark.parametrize("values", CASES.values(), ids=list(CASES))


def counted(values: Floats) -> TensorStatistics:
    return collect_statistics("x", [values], 1)


def answers(calibrator: Calibrator, statistics: TensorStatistics) -> tuple[float, ...]:
    """The answer as plain numbers, so that two can be compared exactly."""
    found = calibrator(statistics)
    channels = () if found.channel_amax is None else tuple(found.channel_amax.tolist())
    return (found.amax, found.clipped, -1.0 if found.objective is None else found.objective, *channels)


def assert_sane(answer: DynamicRange, statistics: TensorStatistics) -> None:
    assert np.isfinite(answer.amax)
    assert 0 <= answer.amax <= statistics.amax
    assert (answer.amax > 0) == (statistics.amax > 0), "only a dead tensor has range 0"
    assert 0 <= answer.clipped <= 1
    assert answer.objective is None or (np.isfinite(answer.objective) and answer.objective >= 0)
    if answer.channel_amax is not None:
        assert answer.channel_amax.shape == statistics.channel_minimum.shape
        assert answer.channel_amax.dtype == np.float32
        assert (answer.channel_amax <= statistics.amax).all()


@every_calibrator
@every_case
def test_the_range_is_sane_and_inside_the_observed_one(name: str, calibrator: Calibrator, values: Floats) -> None:
    statistics = counted(values)
    answer = calibrator(statistics)
    assert_sane(answer, statistics)
    beyond = np.abs(values[np.isfinite(values)].astype(np.float64)) > answer.amax
    assert answer.clipped == pytest.approx(beyond.mean(), abs=_share_of_a_bin(statistics, answer.amax))


def _share_of_a_bin(statistics: TensorStatistics, amax: float) -> float:
    """Clipped shares are known up to the bin in which the threshold lies."""
    bin_ = min(int(amax / statistics.bin_width), statistics.magnitude.size - 1)
    return float(statistics.magnitude[max(bin_ - 1, 0) : bin_ + 1].sum() / statistics.count)


@every_calibrator
def test_never_observed_gives_no_range(name: str, calibrator: Calibrator) -> None:
    never = collect_statistics("x", [], 1)
    assert calibrator(never).amax == 0.0
    only_nan = counted(np.full((1, 2, 3), np.nan, np.float32))
    assert calibrator(only_nan).amax == 0.0


@every_calibrator
@pytest.mark.parametrize("values", [CASES[case] for case in CASES if case not in ("tiny", "huge")])
@pytest.mark.parametrize("power", [3, -7])
def test_scaling_by_a_power_of_two_scales_the_answer(
    name: str, calibrator: Calibrator, values: Floats, power: int
) -> None:
    factor = np.float32(2.0**power)
    one, other = calibrator(counted(values)), calibrator(counted(values * factor))
    assert other.amax == one.amax * factor
    assert other.clipped == one.clipped
    if one.channel_amax is not None and other.channel_amax is not None:
        assert np.array_equal(other.channel_amax, one.channel_amax * factor)


@every_calibrator
@every_case
def test_signs_do_not_matter_to_a_symmetric_range(name: str, calibrator: Calibrator, values: Floats) -> None:
    assert answers(calibrator, counted(-values)) == answers(calibrator, counted(values))


@every_calibrator
@settings(deadline=None, max_examples=10)
@given(st.permutations(range(6)), st.lists(st.integers(1, 5), min_size=0, max_size=3))
def test_order_and_batching_do_not_matter(name: str, calibrator: Calibrator, order: list[int], cuts: list[int]) -> None:
    images = reference.samples("student", 6_000, 4).reshape(6, 5, 200)
    shuffled = images[order]
    parts = [part for part in np.split(shuffled, sorted(set(cuts))) if part.size]
    together = collect_statistics("x", [images], 1)
    assert answers(calibrator, collect_statistics("x", parts, 1)) == answers(calibrator, together)
    assert answers(calibrator, merge_all([counted(part) for part in parts])) == answers(calibrator, together)


@every_calibrator
@every_case
def test_it_is_pure(name: str, calibrator: Calibrator, values: Floats) -> None:
    """The arrays are read-only, unchanged, and a second answer is the first."""
    statistics = counted(values)
    arrays = {field.name: getattr(statistics, field.name) for field in fields(statistics)}
    before = {key: array.copy() for key, array in arrays.items() if isinstance(array, np.ndarray)}
    first = answers(calibrator, statistics)
    assert answers(calibrator, statistics) == first
    for key, copy in before.items():
        assert not arrays[key].flags.writeable
        assert np.array_equal(arrays[key], copy)


@every_calibrator
def test_statistics_of_other_hands_are_enough(name: str, calibrator: Calibrator) -> None:
    """Neither channel extrema nor the tail are always there."""
    bare = replace(collect_statistics("x", [CASES["laplace"]]), tail=np.empty(0, np.float32))
    assert_sane(calibrator(bare), bare)


@every_calibrator
def test_counts_of_a_large_data_set_are_no_problem(name: str, calibrator: Calibrator) -> None:
    statistics = counted(CASES["laplace"])
    many = merge_all([statistics] * 3)
    for _ in range(28):
        many = merge_all([many, many])
    assert many.count > 2**39
    assert_sane(calibrator(many), many)


@every_calibrator
def test_parameters_are_documented_and_have_valid_defaults(name: str, calibrator: Calibrator) -> None:
    assert calibrator.__doc__, "a docstring with parameters, what amax is, and the source"
    for parameter in describe_parameters(calibrator, given=1):
        assert parameter.about.help, f"{name}:{parameter.name} needs a line of help"
    defaults = bind_arguments("calibrator", PluginSpec(name), calibrator, given=1)
    as_text = ",".join(f"{key}={value}" for key, value in defaults.items())
    assert bind_arguments("calibrator", parse_spec(f"{name}:{as_text}"), calibrator, given=1) == defaults
    assert_sane(calibrator(counted(CASES["laplace"]), **defaults), counted(CASES["laplace"]))


@every_calibrator
def test_values_out_of_bounds_are_usage_errors(name: str, calibrator: Calibrator) -> None:
    with pytest.raises(UsageError, match="no-such-parameter"):
        bind_arguments("calibrator", parse_spec(f"{name}:no-such-parameter=1"), calibrator, given=1)
    for parameter in describe_parameters(calibrator, given=1):
        wrong = ["x"] if parameter.type in (int, float, bool) else []
        if parameter.about.minimum is not None:
            wrong.append(str(parameter.about.minimum - 1))
        if parameter.about.maximum is not None:
            wrong += [str(parameter.about.maximum + 1), "nan", "inf"]
        for text in wrong:
            with pytest.raises(UsageError, match=parameter.name):
                bind_arguments("calibrator", parse_spec(f"{name}:{parameter.name}={text}"), calibrator, given=1)


@every_calibrator
def test_numeric_parameters_work_at_their_bounds(name: str, calibrator: Calibrator) -> None:
    statistics = counted(CASES["laplace"])
    for parameter in describe_parameters(calibrator, given=1):
        for bound in (parameter.about.minimum, parameter.about.maximum):
            if bound is not None:
                assert_inside(calibrator(statistics, **{parameter.name: parameter.type(bound)}), statistics)


def assert_inside(answer: DynamicRange, statistics: TensorStatistics) -> None:
    assert 0 <= answer.amax <= statistics.amax
