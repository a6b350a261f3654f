"""Laws of the streaming statistics, against a count by plain numpy in float64."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from calib.core import kernels
from calib.core.histogram import (
    TensorAccumulator,
    collect_statistics,
    concatenated,
    merge,
    merge_all,
    renamed,
)
from calib.types.statistics import TensorStatistics

Floats = NDArray[np.float32]
laws = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

TINY = np.float32(2.0**-126)
SPECIAL = [0.0, -0.0, 1e-45, -1e-45, float(TINY), -float(TINY), 3e38, -3e38, 6.0, -6.0, 5.9999995, 6.0000005, 1.0, -1.0]


def expected(name: str, values: NDArray[Any], axis: int | None = None) -> TensorStatistics:
    """Count by definition, in float64: exact for float32 values."""
    flat = np.asarray(values, np.float32).astype(np.float64)
    finite = flat[np.isfinite(flat)]
    amax = np.abs(finite).max(initial=0.0)
    exponent = max(int(np.frexp(amax)[1]) - kernels.BIN_BITS, kernels.MIN_EXPONENT) if amax else kernels.MIN_EXPONENT
    bins = np.floor(np.abs(finite) / 2.0**exponent).astype(np.int64)
    size = int(bins.max(initial=0)) + 1
    low, high = channel_extrema(flat, axis) if axis is not None else (np.empty(0), np.empty(0))
    return TensorStatistics(
        name=name,
        count=finite.size,
        nonfinite=flat.size - finite.size,
        minimum=float(finite.min(initial=np.inf)),
        maximum=float(finite.max(initial=-np.inf)),
        exponent=exponent,
        negative=np.bincount(bins[finite < 0], minlength=size),
        positive=np.bincount(bins[finite >= 0], minlength=size),
        channel_axis=axis,
        channel_minimum=low.astype(np.float32),
        channel_maximum=high.astype(np.float32),
        tail=np.sort(np.abs(finite).ravel())[-kernels.TAIL :].astype(np.float32),
    )


def channel_extrema(values: NDArray[np.float64], axis: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rows = np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1)
    finite = np.isfinite(rows)
    return np.where(finite, rows, np.inf).min(1, initial=np.inf), np.where(finite, rows, -np.inf).max(
        1, initial=-np.inf
    )


def assert_same(got: TensorStatistics, wanted: TensorStatistics) -> None:
    for field in fields(TensorStatistics):
        ours, theirs = getattr(got, field.name), getattr(wanted, field.name)
        if isinstance(ours, np.ndarray):
            assert ours.dtype == theirs.dtype, field.name
            assert np.array_equal(ours, theirs), field.name
        else:
            assert type(ours) is type(theirs), field.name
            assert ours == theirs, field.name


def count(values: Floats, axis: int | None = None) -> TensorStatistics:
    return collect_statistics("x", [values], axis)


@st.composite
def arrays(draw: st.DrawFn, channels: int | None = None) -> Floats:
    """Tensors of all sorts: spread or repeated values, any scale, special values strewn in, any channel count."""
    shape = (
        draw(st.integers(1, 3)),
        channels or draw(st.integers(1, 5)),
        draw(st.sampled_from([1, 2, 31, 33, 700, 4100])),
    )
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    kind = draw(st.sampled_from(["normal", "relu", "few", "constant", "heavy", "zero", "negative", "minus zero"]))
    values = {
        "normal": lambda: rng.standard_normal(shape),
        "relu": lambda: np.maximum(rng.standard_normal(shape), 0),
        "few": lambda: rng.choice([0.0, -1.0, 6.0, 0.5], shape),
        "constant": lambda: np.full(shape, rng.standard_normal()),
        "heavy": lambda: rng.standard_cauchy(shape),
        "zero": lambda: np.zeros(shape),
        "negative": lambda: -np.abs(rng.standard_normal(shape)),
        "minus zero": lambda: np.where(rng.random(shape) < 0.5, -0.0, -np.abs(rng.standard_normal(shape))),
    }[kind]()
    scaled = (values * 2.0 ** draw(st.sampled_from([0, 0, 3, -20, -130, 100]))).astype(np.float32)
    strewn = draw(st.lists(st.sampled_from([*SPECIAL, np.nan, np.inf, -np.inf]), max_size=4))
    scaled.reshape(-1)[rng.integers(0, scaled.size, len(strewn))] = strewn
    return scaled


@laws
@given(arrays(), st.sampled_from([None, 0, 1, 2, -1, -2]))
def test_counts_match_the_definition(values: Floats, axis: int | None) -> None:
    got = count(values, axis)
    wanted = expected("x", values, None if axis is None else axis)
    assert_same(got, wanted)


@laws
@given(st.lists(arrays(channels=3), min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_any_batching_order_and_merging_gives_the_same_bits(parts: list[Floats], random: Any) -> None:
    rows = [np.ascontiguousarray(np.moveaxis(part, 1, 0).reshape(3, -1)) for part in parts]
    whole = expected("x", np.concatenate(rows, axis=1), 0)
    assert_same(collect_statistics("x", rows, 0), whole)
    shuffled = random.sample(rows, len(rows))
    assert_same(collect_statistics("x", shuffled, 0), whole)
    pieces = [count(piece, 0) for row in shuffled for piece in np.array_split(row, 3, axis=1)]
    assert_same(merge_all(pieces), whole)
    random.shuffle(pieces)
    while len(pieces) > 1:  # merge in a random tree
        first, second = pieces.pop(random.randrange(len(pieces))), pieces.pop(random.randrange(len(pieces)))
        pieces.append(merge(first, second))
    assert_same(pieces[0], whole)


@laws
@given(arrays(channels=2), arrays(channels=2), arrays(channels=2))
def test_merging_is_associative_and_commutative(first: Floats, second: Floats, third: Floats) -> None:
    one, two, three = (count(values, 1) for values in (first, second, third))
    assert_same(merge(merge(one, two), three), merge(one, merge(two, three)))
    assert_same(merge(one, two), merge(two, one))


@laws
@given(arrays())
def test_merging_with_nothing_changes_nothing(values: Floats) -> None:
    whole, nothing = count(values, 1), collect_statistics("x", [], 1)
    assert_same(merge(whole, nothing), whole)
    assert_same(merge(nothing, whole), whole)


BOUNDS = [
    (None, None),
    (0.0, None),
    (None, 0.0),
    (0.0, 0.0),
    (0.0, 6.0),
    (-6.0, 0.0),
    (-1.0, 1.0),
    (None, 0.1),
    (-0.3, 3e38),
]


@laws
@given(st.lists(arrays(channels=3), min_size=1, max_size=3), st.sampled_from(BOUNDS), st.data())
def test_clipping_afterwards_equals_counting_clipped_values(
    parts: list[Floats], bounds: tuple[float | None, float | None], data: st.DataObject
) -> None:
    finite = [np.nan_to_num(part, nan=0.25, posinf=2.0, neginf=-2.0) for part in parts]
    accumulator = TensorAccumulator("x", 1, *bounds)
    for part in finite:
        accumulator.update(part)
    assert_same(accumulator.statistics(), collect_statistics("x", finite, 1))
    low = data.draw(st.sampled_from([None, 0.0, bounds[0]]))
    high = data.draw(st.sampled_from([None, 0.0, bounds[1]]))
    as_float32 = (np.float32(-np.inf if low is None else low), np.float32(np.inf if high is None else high))
    clipped = [np.clip(part, *as_float32) for part in finite]
    assert_same(accumulator.clipped("y", low, high), collect_statistics("y", clipped, 1))


@pytest.mark.parametrize("bounds", [(None, 0.5), (-0.25, 0.5)])
def test_clipping_counts_what_is_not_finite_apart(bounds: tuple[float | None, float | None]) -> None:
    values = np.array([[np.nan, np.inf, -np.inf, 1.0, -1.0, 0.25, np.nan]], np.float32)
    accumulator = TensorAccumulator("x", 0, *bounds)
    accumulator.update(values)
    clipped = accumulator.clipped("y", *bounds)
    assert (clipped.count, clipped.nonfinite) == (3, 4)
    assert clipped.maximum == 0.5


@pytest.mark.parametrize("bounds", [(0.1, None), (None, -0.1), (float("nan"), None), (None, float("nan"))])
def test_bounds_must_enclose_zero(bounds: tuple[float | None, float | None]) -> None:
    with pytest.raises(ValueError, match="must enclose 0"):
        TensorAccumulator("x", None, *bounds)


@pytest.mark.parametrize("bounds", [(-2.0, None), (None, 5.0), (-1.0, 6.0)])
def test_clipping_at_a_bound_that_was_not_counted_is_refused(bounds: tuple[float | None, float | None]) -> None:
    accumulator = TensorAccumulator("x", None, None, 6.0)
    with pytest.raises(ValueError, match="not counted with the bounds"):
        accumulator.clipped("y", *bounds)


def test_minus_zeros_below_a_relu_bound_are_counted_once() -> None:
    """A big block of -0.0 and negative values, no positive one: the zeros belong to the non-negative region."""
    values = np.full(100_000, -1.0, np.float32)
    values[::7] = -0.0
    accumulator = TensorAccumulator("x", None, 0.0, None)
    accumulator.update(values)
    accumulator.update(np.zeros(0, np.float32))
    assert_same(accumulator.statistics(), expected("x", values))
    fresh = count(np.full(100_000, 0.5, np.float32))  # the thread's scratch is clean again
    assert fresh.positive.sum() == 100_000


@laws
@given(st.lists(arrays(channels=2), min_size=1, max_size=3), st.booleans())
def test_concatenation_equals_counting_the_concatenated(parts: list[Floats], along: bool) -> None:
    rows = [np.ascontiguousarray(np.moveaxis(part, 1, 0).reshape(2, -1)) for part in parts]
    sizes = [row.shape[1] for row in rows]
    if along:  # joined along channels they need equal lengths
        rows = [row[:, : min(sizes)] for row in rows]
    joined = np.concatenate(rows, axis=0 if along else 1)
    got = concatenated("y", [count(row, 0) for row in rows], 0, along=along)
    assert_same(got, expected("y", joined, 0))


def test_concatenation_without_channels_on_one_side_has_none() -> None:
    first, second = count(np.ones((2, 3), np.float32), 0), count(np.ones((2, 3), np.float32))
    joined = concatenated("y", [first, second], 0, along=True)
    assert joined.channel_axis is None
    assert joined.channel_minimum.size == 0
    assert joined.count == 12


def test_renaming_keeps_the_counts() -> None:
    original = count(np.arange(12, dtype=np.float32).reshape(3, 4), 0)
    moved = renamed(original, "y", 1)
    assert (moved.name, moved.channel_axis) == ("y", 1)
    assert np.array_equal(moved.channel_maximum, [3, 7, 11])
    dropped = renamed(original, "y", None)
    assert dropped.channel_axis is None
    assert dropped.channel_maximum.size == 0
    assert renamed(count(np.ones(3, np.float32)), "y", 0).channel_axis is None
    assert np.array_equal(moved.positive, original.positive)


def test_values_at_the_edges_of_float32() -> None:
    values = np.array([3e38, -3e38, np.finfo(np.float32).max, 1e-45, -1e-45, 0.0, -0.0, float(TINY)], np.float32)
    assert_same(count(values), expected("x", values))
    small = np.array([1e-45, -1e-45, float(TINY), -0.0], np.float32)
    got = count(small)
    assert got.exponent == kernels.MIN_EXPONENT
    assert list(got.positive) == [2, 1]
    assert list(got.negative) == [1, 0]


def test_huge_after_tiny_widens_by_more_than_a_register() -> None:
    parts = [np.full(5, 1e-40, np.float32), np.full(7, 1.0, np.float32), np.full(3, 3e38, np.float32)]
    assert_same(collect_statistics("x", parts), expected("x", np.concatenate(parts)))
    assert_same(collect_statistics("x", parts[::-1]), expected("x", np.concatenate(parts)))


SIZES = [
    edge + offset
    for edge in (0, kernels.SHORT_ROW, kernels.BLOCK, 3 * kernels.BLOCK, kernels.FEW, kernels.FEW + kernels.BLOCK)
    for offset in (-5, -1, 0, 1, 2, 3, kernels.LANES)
    if edge + offset >= 0
]


@pytest.mark.parametrize("size", SIZES)
def test_sizes_around_every_threshold(size: int) -> None:
    rng = np.random.default_rng(size)
    spread = rng.standard_normal((2, size)).astype(np.float32)
    repeated = np.maximum(spread, 0.5)
    for values in (spread, repeated):
        for axis in (None, 0, 1) if 0 < size < kernels.BLOCK else (None, 0):
            wanted = expected("x", values, axis) if values.size else collect_statistics("x", [], axis)
            assert_same(count(values, axis), wanted)


@pytest.mark.parametrize("shape", [(2, 3, 40, 50), (2, 40, 50, 3), (3, 5, 7), (70_000, 2), (1, 1, 1), (4, 1, 9), (6,)])
def test_channels_first_middle_and_last(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    values.reshape(-1)[0] = np.nan
    for axis in range(len(shape)):
        assert_same(count(values, axis), expected("x", values, axis))


def test_a_channel_without_finite_values_is_marked() -> None:
    values = np.stack([np.full(40, np.nan), np.arange(40.0)]).astype(np.float32)
    got = count(values, 0)
    assert list(got.channel_minimum) == [np.inf, 0]
    assert list(got.channel_maximum) == [-np.inf, 39]


@pytest.mark.parametrize("second", [np.ones((2, 4, 5), np.float32), np.ones((), np.float32), np.ones(3, np.float32)])
def test_a_channel_count_that_changes_ends_channel_tracking(second: Floats) -> None:
    first = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    for parts in ([first, second], [second, first], [first, second, first]):
        together = collect_statistics("x", parts, 1)
        assert together.channel_axis is None
        assert together.channel_minimum.size == 0
        assert together.count == sum(part.size for part in parts)
        assert_same(merge_all([count(part, 1) for part in parts]), together)


def test_empty_arrays_leave_no_trace() -> None:
    values = np.arange(30, dtype=np.float32).reshape(2, 3, 5)
    empties = [np.empty((2, 3, 0), np.float32), np.empty((0, 4, 5), np.float32), np.empty(0, np.float32)]
    assert_same(collect_statistics("x", [*empties, values, *empties], 1), count(values, 1))
    never = collect_statistics("x", empties, 1)
    assert (never.count, never.nonfinite, never.minimum, never.maximum, never.amax) == (0, 0, np.inf, -np.inf, 0.0)
    assert list(never.positive) == [0]


def test_a_scalar_has_no_channels() -> None:
    got = count(np.float32(-2.5).reshape(()), 0)
    assert got.channel_axis is None
    assert (got.count, got.minimum, got.amax) == (1, -2.5, 2.5)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, ">f4", np.int8, np.uint8, np.bool_])
def test_other_types_are_counted_as_float32(dtype: Any) -> None:
    values = np.array([[0, 1, 2, 3], [1, 1, 0, 7]]).astype(dtype)
    assert_same(count(values, 0), expected("x", values, 0))


def test_a_double_beyond_float32_counts_as_infinite() -> None:
    got = count(np.array([1e300, -1e300, 1.0]))
    assert (got.count, got.nonfinite, got.maximum) == (1, 2, 1.0)


def memory_layouts() -> Iterator[Floats]:
    values = np.random.default_rng(2).standard_normal((4, 6, 40)).astype(np.float32)
    yield values[::2, ::-1]
    yield np.asfortranarray(values)
    yield values.transpose(2, 0, 1)
    yield np.broadcast_to(values[:1], (3, 6, 40))
    yield np.frombuffer(values.tobytes(), np.float32).reshape(values.shape)  # read-only
    raw = np.frombuffer(b"\0" + values.tobytes(), np.uint8)[1:]
    yield raw.view(np.float32).reshape(values.shape)  # unaligned


@pytest.mark.parametrize("values", list(memory_layouts()))
def test_memory_layout_does_not_matter(values: Floats) -> None:
    before = values.copy()
    flags = values.flags.writeable
    assert_same(count(values, 1), expected("x", before, 1))
    assert np.array_equal(values, before)
    assert values.flags.writeable == flags


def test_one_compiled_kernel_serves_every_layout() -> None:
    for values in memory_layouts():
        count(values, 1)
    assert len(kernels.count_tensor.signatures) == 1  # type: ignore[attr-defined]


def test_statistics_are_frozen_and_apart_from_later_counting() -> None:
    accumulator = TensorAccumulator("x", 0)
    accumulator.update(np.ones((2, 3), np.float32))
    early = accumulator.statistics()
    accumulator.update(np.full((2, 3), 100.0, np.float32))
    assert (early.count, early.amax, int(early.positive.sum())) == (6, 1.0, 6)
    for array in (early.positive, early.negative, early.channel_minimum, early.channel_maximum):
        assert not array.flags.writeable


def test_threads_with_accumulators_of_their_own_do_not_disturb_each_other() -> None:
    rng = np.random.default_rng(3)
    tensors = [(rng.standard_normal((2, 30_000)) * 10.0**power).astype(np.float32) for power in range(6)]
    results: dict[int, TensorStatistics] = {}

    def work(index: int) -> None:
        results[index] = collect_statistics("x", [tensors[index]] * 5, 0)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(len(tensors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, values in enumerate(tensors):
        assert_same(results[index], expected("x", np.tile(values, (1, 5)), 0))


def test_counts_beyond_float32_and_int32_stay_exact() -> None:
    """Peers count in float32 (stops at 2**24) and convert to int32 (negative beyond 2**31)."""
    part = count(np.array([0.5] * 3 + [-1.0], np.float32))
    whole = part
    for _ in range(32):
        whole = merge(whole, whole)
    assert whole.count == 4 * 2**32
    assert int(whole.positive[-1]) == 0
    assert int(whole.magnitude.max()) == 3 * 2**32


def in_blocks(values: Floats, width: int, padding: float) -> Floats:
    """Lay a tensor ``[N, C, H, W]`` out in blocks of channels, the last one filled up."""
    images, channels, height, breadth = values.shape
    whole = np.full((images, -(-channels // width) * width, height, breadth), padding, np.float32)
    whole[:, :channels] = values
    return np.ascontiguousarray(whole.reshape(images, -1, width, height, breadth).transpose(0, 1, 3, 4, 2))


@laws
@given(
    arrays(),
    st.sampled_from(kernels.WIDTHS),
    st.integers(1, 35),
    st.sampled_from([0.0, 0.5, -1e30, np.nan, np.inf]),
    st.sampled_from([None, 0, 1, -1]),
    st.sampled_from(BOUNDS),
)
def test_blocks_of_channels_count_like_the_tensor(
    values: Floats, width: int, channels: int, padding: float, axis: int | None, bounds: tuple[Any, Any]
) -> None:
    """Padding of whatever value leaves no trace: not in the counts, the extrema, the tail or the count of NaN."""
    flat = np.resize(values.reshape(-1), (2, channels, max(values.size // (2 * channels), 1), 1))
    plain, blocked = (TensorAccumulator("x", axis, *bounds) for _ in range(2))
    for part in (flat, np.float32(0.5) * flat[:1]):
        plain.update(part)
        blocked.update_blocks(in_blocks(part, width, padding), channels)
    assert_same(blocked.statistics(), plain.statistics())
    assert_same(blocked.clipped("y", *bounds), plain.clipped("y", *bounds))


@pytest.mark.parametrize("width", kernels.WIDTHS)
@pytest.mark.parametrize("places", [1, 31, 257, 1000, 4096])
@pytest.mark.parametrize("channels", [3, 16, 24, 40])
def test_blocks_around_every_threshold(width: int, places: int, channels: int) -> None:
    rng = np.random.default_rng(places)
    spread = rng.standard_normal((2, channels, places, 1)).astype(np.float32)
    for values in (spread, np.maximum(spread, 0), np.full_like(spread, 0.25)):
        accumulator = TensorAccumulator("x", 1, None, 2.0)
        accumulator.update_blocks(in_blocks(values, width, 7.0), channels)
        assert_same(accumulator.statistics(), expected("x", values, 1))


def test_blocks_without_a_value_leave_no_trace() -> None:
    accumulator = TensorAccumulator("x", 1)
    accumulator.update_blocks(np.empty((0, 2, 3, 3, 8), np.float32), 12)
    accumulator.update_blocks(np.empty((1, 2, 0, 3, 8), np.float32), 12)
    assert_same(accumulator.statistics(), collect_statistics("x", [], 1))


def test_a_channel_count_that_changes_among_blocks_ends_channel_tracking() -> None:
    accumulator = TensorAccumulator("x", 1)
    accumulator.update_blocks(np.ones((1, 1, 4, 4, 8), np.float32), 7)
    accumulator.update_blocks(np.ones((1, 2, 4, 4, 8), np.float32), 9)
    got = accumulator.statistics()
    assert (got.channel_axis, got.count) == (None, 16 * (7 + 9))


@pytest.mark.parametrize("bounds", [(None, None), (-0.5, 0.5)])
def test_more_values_than_a_histogram_holds(bounds: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Emptied again and again, widened in between, it counts as one that held all."""
    rng = np.random.default_rng(5)
    parts = [rng.standard_normal((2, 500)).astype(np.float32) * np.float32(2.0**power) for power in (0, 3, -4, 9, 0)]
    plain = TensorAccumulator("x", 0, *bounds)
    emptied = TensorAccumulator("x", 0, *bounds)
    for part in parts:
        plain.update(part)
    monkeypatch.setattr(kernels, "MOST", 2500)
    for part in parts:
        emptied.update(part)
    assert emptied._held == 1000
    assert_same(emptied.statistics(), plain.statistics())
    assert_same(emptied.clipped("y", *bounds), plain.clipped("y", *bounds))
    assert_same(emptied.statistics(), expected("x", np.concatenate(parts, axis=1), 0))
