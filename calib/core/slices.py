"""Slices: parts of a split that matter, each a set of images chosen by a rule anyone can read.

Quarters are relative to the split, so every data set has a dark slice; the rule states where the cut fell.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.core.sliceexpr import evaluate_expression
from calib.errors import UsageError
from calib.types.scores import ScoreTable

Mask = NDArray[np.bool_]
DARK_PIXELS = "dark-pixels"
"""The second level of dark: not dark images, but the dark pixels of all images."""
MOST_VALUES = 32
"""A group column with more values names images, not groups; it makes no slices."""
FEWEST_HOLDERS = 4
"""A class in fewer images than this has no quarter."""
RESERVED = (DARK_PIXELS, "dark", "small-objects", "edges")


@dataclass(frozen=True)
class Slice:
    """Images of a split.

    Attributes:
        name: as in ``evaluation.json`` and ``--max-drop slice:NAME=…``.
        rule: how the images were chosen, in words.
        mask: bool ``[N]`` over the rows of the score table; for ``dark-pixels`` the images that have any.
    """

    name: str
    rule: str
    mask: Mask


def make_slices(
    table: ScoreTable, groups: Sequence[Mapping[str, str]], custom: Mapping[str, str]
) -> tuple[tuple[Slice, ...], tuple[str, ...]]:
    """Make every slice of a split.

    Args:
        table: scores of the labelled images.
        groups: each image's manifest columns, in the table's order.
        custom: the user's slices: name to expression.

    Returns:
        slices without those that would be empty, and notes on what was left out.

    Raises:
        UsageError: an expression is malformed, or a name is taken.
    """
    found = [*_quarters(table), *_rare_classes(table), *_groups(groups), *_custom(table, groups, custom)]
    names = [item.name for item in found]
    for name in custom:
        if names.count(name) > 1 or name in RESERVED:
            raise _taken(name)
    notes = [f"slice {item.name}: no image fits ({item.rule})" for item in found if not item.mask.any()]
    return tuple(item for item in found if item.mask.any()), (*notes, *_skipped_columns(groups))


def split_slice_option(text: str) -> tuple[str, str]:
    """Take ``NAME=EXPRESSION`` apart.

    Raises:
        UsageError: there is no name or no expression.
    """
    name, _, expression = text.partition("=")
    if not name.strip() or not expression.strip() or re.search(r"[<>!]", name):
        raise UsageError(
            f"--slice {text}", expected="NAME=EXPRESSION", got=repr(text),
            remedy='write for example --slice night="luma_mean<60"',
        )  # fmt: skip
    return name.strip(), expression.strip()


def parse_slices(texts: Sequence[str]) -> dict[str, str]:
    """Take several ``NAME=EXPRESSION`` apart: name to expression.

    Raises:
        UsageError: one is malformed, or two have one name.
    """
    found: dict[str, str] = {}
    for name, expression in map(split_slice_option, texts):
        if name in found or name in RESERVED:
            raise _taken(name)
        found[name] = expression
    return found


def _taken(name: str) -> UsageError:
    return UsageError(
        f"--slice {name}=…", expected="a name that is not taken", got=repr(name), remedy="choose another name"
    )


def dark_pixels(table: ScoreTable, holders: Mask) -> Slice:
    """The slice of dark pixels inside all images."""
    luma = table.thresholds["dark_luma"]
    return Slice(DARK_PIXELS, f"pixels with a luma below {luma:g} of 255, inside all images", holders)


def _quarters(table: ScoreTable) -> Iterator[Slice]:
    luma = np.asarray(table.columns["luma_mean"], np.float64)
    mask, cut = lowest_quarter(luma)
    yield Slice("dark", f"the darkest quarter of the images: mean luma of at most {cut:.4g} of 255", mask)
    for name, column, words in (
        ("small-objects", "small_share", "the largest share of labelled pixels in small objects: at least"),
        ("edges", "edge_density", "the highest edge density: at least"),
    ):
        values = np.asarray(table.columns[column], np.float64)
        mask, cut = lowest_quarter(-values)
        yield Slice(name, f"the quarter of the images with {words} {-cut:.3g}", mask & (values > 0))


def _rare_classes(table: ScoreTable) -> Iterator[Slice]:
    shares = np.nan_to_num(np.asarray(table.columns["class_share"], np.float64))
    for place, name in enumerate(table.class_names):
        share = shares[:, place]
        held = share > 0
        if np.count_nonzero(held) < FEWEST_HOLDERS:
            continue
        _, cut = lowest_quarter(share[held])
        rule = f"of the images that hold {name}, the quarter with the least of it: at most {cut:.3g} of the pixels"
        yield Slice(f"rare:{name}", rule, held & (share <= cut))


def lowest_quarter(values: NDArray[np.float64]) -> tuple[Mask, float]:
    """Mark the quarter of the values that is lowest, rounded up, with all that equal its highest; NaN never belongs.

    Returns:
        bool mask, and the highest value that belongs.
    """
    known = np.sort(values[~np.isnan(values)])
    if not known.size:
        return np.zeros(values.shape, bool), math.nan
    cut = float(known[math.ceil(known.size / 4) - 1])
    return np.asarray(values <= cut), cut


def _groups(groups: Sequence[Mapping[str, str]]) -> Iterator[Slice]:
    for column in sorted({name for group in groups for name in group}):
        own = [group.get(column) for group in groups]
        values = sorted({value for value in own if value is not None})
        if _names_images(own):
            continue
        for value in values:
            mask = np.array([item == value for item in own], bool)
            yield Slice(f"{column}={value}", f"images whose {column} is {value} in the manifest", mask)


def _skipped_columns(groups: Sequence[Mapping[str, str]]) -> list[str]:
    notes = []
    for name in sorted({name for group in groups for name in group}):
        own = [group.get(name) for group in groups]
        if _names_images(own):
            values = len({value for value in own if value is not None})
            notes.append(f"manifest column {name}: {values} values, no slices of it; --slice can still use it")
    return notes


def _names_images(values: Sequence[str | None]) -> bool:
    """Whether a column tells images apart and not groups: very many values, or never two images with one."""
    known = [value for value in values if value is not None]
    return len(set(known)) > MOST_VALUES or (len(known) > 1 and len(set(known)) == len(known))


def _custom(table: ScoreTable, groups: Sequence[Mapping[str, str]], custom: Mapping[str, str]) -> Iterator[Slice]:
    for name, expression in custom.items():
        mask = evaluate_expression(expression, table, groups, f"--slice {name}")
        yield Slice(name, f"images with {expression}", mask)
