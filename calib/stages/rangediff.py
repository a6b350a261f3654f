"""Two files of ranges side by side: tensors matched by name, then by value and order, and their ratio in bits."""

from __future__ import annotations

import bisect
import difflib
import itertools
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from calib.types.rangetable import LEVELS, RangeTable, TensorRange

How = Literal["name", "value", "order"]
GAP = 1.0
"""Cost of leaving a tensor unmatched, in bits; two of them cost as much as a pair two bits apart."""
FAR = 2 * GAP
LIKELY = 0.5
"""Renamed tensors are believed if half of them agree within this many bits."""
MOST_CELLS = 1_000_000
"""Largest alignment table; beyond it only equal values are matched."""


@dataclass(frozen=True)
class Change:
    """A tensor of both files; for a weight the channel that differs most.

    Attributes:
        name: in the first.
        other: in the second; another name where it was renamed.
        how: what they were matched by.
        before: amax in the first.
        after: amax in the second.
        bits: ``log2(after / before)``; infinite against a range of 0, NaN where either is not finite or negative.
    """

    name: str
    other: str
    how: How
    before: float
    after: float
    bits: float


@dataclass(frozen=True)
class TableDiff:
    """What two files have in common, and what not.

    Attributes:
        changes: tensors of both, in the first file's order.
        only_first: tensors of the first alone, in file order.
        only_second: tensors of the second alone, in file order.
        headers: what the files say of themselves and where they differ: key, first, second.
    """

    changes: tuple[Change, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    headers: tuple[tuple[str, str, str], ...]

    @property
    def by_size(self) -> tuple[Change, ...]:
        """Changes, the largest first; what cannot be compared before all, ties in file order."""
        return tuple(sorted(self.changes, key=lambda item: -_size(item.bits)))

    @property
    def renamed(self) -> tuple[Change, ...]:
        """Tensors that have another name in the second file."""
        return tuple(item for item in self.changes if item.how != "name")

    @property
    def identical(self) -> bool:
        """Whether both hold the same ranges under the same names."""
        same = all(item.bits == 0 and item.how == "name" for item in self.changes)
        return same and not self.only_first and not self.only_second


def _size(bits: float) -> float:
    return math.inf if math.isnan(bits) else abs(bits)


def ratio_in_bits(before: float, after: float) -> float:
    """Compute ``log2(after / before)`` of two amax; NaN where one is negative or not finite and they differ."""
    if before == after or (math.isnan(before) and math.isnan(after)):
        return 0.0
    if not (0 <= before < math.inf and 0 <= after < math.inf):
        return math.nan
    if before == 0 or after == 0:
        return math.inf if before == 0 else -math.inf
    return math.log2(after) - math.log2(before)


def diff_tables(first: RangeTable, second: RangeTable) -> TableDiff:
    """Compare two tables of the same naming."""
    pairs: dict[str, tuple[str, How]] = {name: (name, "name") for name in first.ranges if name in second.ranges}
    pairs.update({item.name: (other.name, how) for item, other, how in _renamed(first, second)})
    taken = {other for other, _ in pairs.values()}
    changes = [
        _change(first.ranges[name], second.ranges[pairs[name][0]], pairs[name][1])
        for name in first.ranges
        if name in pairs
    ]
    return TableDiff(
        changes=(*changes, *_weight_changes(first, second)),
        only_first=tuple(name for name in first.ranges if name not in pairs),
        only_second=tuple(name for name in second.ranges if name not in taken),
        headers=tuple(_headers(first, second)),
    )


def _change(before: TensorRange, after: TensorRange, how: How) -> Change:
    bits = 0.0 if before.exact_scale == after.exact_scale else ratio_in_bits(before.amax, after.amax)
    return Change(before.name, after.name, how, before.amax, after.amax, bits)


def _weight_changes(first: RangeTable, second: RangeTable) -> Iterator[Change]:
    """Compare weights of one name, where both files hold their ranges, channel by channel."""
    others = {item.name: item.scales for item in second.weights}
    for item in first.weights:
        before, after = item.scales * LEVELS, others.get(item.name, item.scales[..., None]) * LEVELS
        if before.shape == after.shape:
            ratios = [ratio_in_bits(*pair) for pair in zip(before.flat, after.flat, strict=True)]
            worst = max(range(len(ratios)), key=lambda place: _size(ratios[place]), default=None)
            if worst is not None:
                sides = float(before.flat[worst]), float(after.flat[worst])
                yield Change(item.name, item.name, "name", *sides, ratios[worst])


def _headers(first: RangeTable, second: RangeTable) -> Iterator[tuple[str, str, str]]:
    if first.source != second.source:
        yield "format", first.source, second.source
    for key in dict.fromkeys((*first.metadata, *second.metadata)):
        texts = tuple(
            "not stated" if value is None else str(value)
            for value in (first.metadata.get(key), second.metadata.get(key))
        )
        if texts[0] != texts[1]:
            yield key, texts[0], texts[1]


Pair = tuple[TensorRange, TensorRange, How]


def _renamed(first: RangeTable, second: RangeTable) -> Iterator[Pair]:
    """Match what names leave over: by unique equal values, and between common names by order and closeness."""
    rest = [
        [item for item in one if item.name not in other.ranges] for one, other in ((first, second), (second, first))
    ]
    if "sorted" in (first.order, second.order):
        yield from _equal_once(*rest)
        return
    for before, after in _gaps(first, second):
        yield from _aligned(before, after)


def _equal_once(first: Sequence[TensorRange], second: Sequence[TensorRange]) -> Iterator[Pair]:
    counts = [Counter(item.exact_scale for item in rest) for rest in (first, second)]
    unique = {item.exact_scale: item for item in second if counts[1][item.exact_scale] == 1}
    for item in first:
        if counts[0][item.exact_scale] == 1 and item.exact_scale in unique:
            yield item, unique[item.exact_scale], "value"


def _gaps(first: RangeTable, second: RangeTable) -> Iterator[tuple[list[TensorRange], list[TensorRange]]]:
    """List what stands between names that both tables have in one order."""
    places = {name: place for place, name in enumerate(second.ranges)}
    common = [name for name in first.ranges if name in places]
    anchors = _longest_ascending(common, [places[name] for name in common])
    ours, theirs = list(first), list(second)
    where = {item.name: place for place, item in enumerate(ours)}
    bounds = [(-1, -1), *((where[name], places[name]) for name in anchors), (len(ours), len(theirs))]
    for (left, low), (right, high) in itertools.pairwise(bounds):
        before = [item for item in ours[left + 1 : right] if item.name not in second.ranges]
        after = [item for item in theirs[low + 1 : high] if item.name not in first.ranges]
        if before and after:
            yield before, after


def _longest_ascending(names: Sequence[str], places: Sequence[int]) -> list[str]:
    """Find the longest run of names whose places ascend (patience sorting)."""
    tails: list[int] = []
    piles: list[int] = []
    back: list[int] = []
    for index, place in enumerate(places):
        pile = bisect.bisect_left(tails, place)
        back.append(piles[pile - 1] if pile else -1)
        tails[pile : pile + 1] = [place]
        piles[pile : pile + 1] = [index]
    chain, index = [], piles[-1] if piles else -1
    while index >= 0:
        chain.append(names[index])
        index = back[index]
    return chain[::-1]


def _aligned(first: list[TensorRange], second: list[TensorRange]) -> Iterator[Pair]:
    """Match a gap: runs of equal values first, then what stands between them by order and closeness."""
    matcher = difflib.SequenceMatcher(
        None, [item.exact_scale for item in first], [item.exact_scale for item in second], autojunk=False
    )
    left = low = 0
    for block in matcher.get_matching_blocks():
        yield from _closest(first[left : block.a], second[low : block.b])
        left, low = block.a + block.size, block.b + block.size
        for offset in range(block.size):
            yield first[block.a + offset], second[block.b + offset], "value"


def _closest(first: list[TensorRange], second: list[TensorRange]) -> Iterator[Pair]:
    if not first or not second or len(first) * len(second) > MOST_CELLS:
        return
    pairs = _align(first, second)
    distances = [_size(ratio_in_bits(before.amax, after.amax)) for before, after in pairs]
    if distances and statistics.median(distances) <= LIKELY:
        yield from ((before, after, "order") for before, after in pairs)


def _align(first: list[TensorRange], second: list[TensorRange]) -> list[tuple[TensorRange, TensorRange]]:
    """Align two runs at the least cost: the distance in bits a pair, :data:`GAP` a tensor left out."""
    costs = [[min(_size(ratio_in_bits(a.amax, b.amax)), FAR) for b in second] for a in first]
    rows = [[GAP * column for column in range(len(second) + 1)]]
    for index, row in enumerate(costs):
        above, line = rows[-1], [GAP * (index + 1)]
        for column, cost in enumerate(row):
            line.append(min(above[column] + cost, above[column + 1] + GAP, line[column] + GAP))
        rows.append(line)
    return list(_traced(rows, costs, first, second))[::-1]


def _traced(
    rows: list[list[float]], costs: list[list[float]], first: list[TensorRange], second: list[TensorRange]
) -> Iterator[tuple[TensorRange, TensorRange]]:
    row, column = len(first), len(second)
    while row and column:
        here = rows[row][column]
        if here == rows[row - 1][column - 1] + costs[row - 1][column - 1] and costs[row - 1][column - 1] < FAR:
            row, column = row - 1, column - 1
            yield first[row], second[column]
        elif here == rows[row - 1][column] + GAP:
            row -= 1
        elif here == rows[row][column - 1] + GAP:
            column -= 1
        else:  # a pair as costly as two gaps
            row, column = row - 1, column - 1
