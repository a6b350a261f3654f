"""Choose images by samplers, compare the chosen with the population, and find images that two splits share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.phash import COPY_DIFFERENCE, COPY_DISTANCE, close_pairs, thumbnail_difference
from calib.core.plugins import bind_arguments, find_plugin
from calib.core.scores import HISTOGRAM_BINS, is_flat
from calib.core.scoretable import full_column, has_labels, take_rows
from calib.errors import LeakError, UsageError
from calib.types.parameters import PluginSpec
from calib.types.scores import Sampler, ScoreTable, Selection

GIVEN = 3
"""A sampler's leading parameters that the workbench passes itself: table, n, rng."""

NAMED_PAIRS = 10
FIRST_OBJECT_BIN, LAST_OBJECT_BIN = 2, 20


def choose(
    table: ScoreTable, specs: Sequence[PluginSpec], registry: Mapping[str, Sampler], n: int, seed: int
) -> Selection:
    """Choose ``min(n, images)`` images; several samplers share them evenly, the first ones taking the odd images.

    Each sampler chooses from what those before it have left; their answers are interleaved, so that any first part
    of the selection is shared evenly too.

    Args:
        table: scores.
        specs: samplers with their arguments, at least one.
        registry: all samplers by name.
        n: images wanted, at least 1.
        seed: of every random choice.

    Raises:
        UsageError: an unknown sampler, a bad argument, or a sampler whose answer is not ``n`` unique rows.
    """
    bound = [_bind(spec, registry) for spec in specs]
    free = np.ones(len(table), bool)
    parts: list[tuple[float, int, int, float, str]] = []
    notes: list[str] = []
    for place, (spec, sampler) in enumerate(zip(specs, bound, strict=True)):
        rows = np.flatnonzero(free)
        share = (n + len(specs) - 1 - place) // len(specs)
        offered = table if len(rows) == len(table) else take_rows(table, rows)
        part = sampler(offered, share, np.random.default_rng([seed, place]))
        _check_answer(spec, part, len(rows), share)
        chosen = rows[part.rows]
        free[chosen] = False
        for turn, (row, score, name) in enumerate(zip(chosen, part.scores, part.samplers, strict=True)):
            parts.append(((turn + 0.5) / len(chosen), place, int(row), float(score), name))
        notes += part.notes if len(specs) == 1 else [f"{spec}: {note}" for note in part.notes]
    parts.sort(key=lambda item: item[:2])
    return Selection(
        np.array([item[2] for item in parts], np.int64),
        np.array([item[3] for item in parts], np.float64),
        tuple(item[4] for item in parts),
        tuple(dict.fromkeys(notes)),
    )


def _bind(spec: PluginSpec, registry: Mapping[str, Sampler]) -> Callable[..., Selection]:
    sampler = find_plugin("sampler", spec.name, registry)
    arguments = bind_arguments("sampler", spec, sampler, GIVEN)
    return lambda table, n, rng: sampler(table, n, rng, **arguments)


def _check_answer(spec: PluginSpec, part: Selection, images: int, share: int) -> None:
    """Hold a sampler, which may come from outside, to the contract."""
    rows = np.asarray(part.rows)
    wanted = min(share, images)
    sizes = {len(rows), len(part.scores), len(part.samplers)}
    inside = len(rows) == 0 or (rows.min() >= 0 and rows.max() < images)
    if sizes != {wanted} or len(np.unique(rows)) != len(rows) or not inside:
        raise UsageError(
            f"sampler {spec}",
            expected=f"{wanted} different rows of {images}, with a score and a sampler name each",
            got=f"{len(rows)} rows, {len(np.unique(rows))} different",
            remedy="the sampler is at fault: it must answer min(n, images) unique row numbers",
        )


@dataclass(frozen=True)
class SharedImage:
    """An image that two tables share.

    Attributes:
        first: key in the first table.
        second: key in the second table.
        identical: whether the files are the same, byte for byte.
        distance: bits between the perceptual hashes.
    """

    first: str
    second: str
    identical: bool
    distance: int


def shared_images(a: ScoreTable, b: ScoreTable, max_distance: int = COPY_DISTANCE) -> list[SharedImage]:
    """Find images of one table that also occur in the other, as the same file or as a re-encoded or resized copy.

    A copy's perceptual hash lies within ``max_distance`` bits and its thumbnail agrees to ``COPY_DIFFERENCE``; the
    hash alone would also report neighbouring video frames. Flat images are compared by their files only, since they
    all look the same. ``docs/scores.md`` gives the measured error rates.

    Args:
        a: scores of the first set.
        b: scores of the second set.
        max_distance: largest Hamming distance of a copy; 0 to 64.

    Returns:
        Pairs in ascending order of the keys in ``a``, then ``b``.
    """
    digests: dict[str, list[int]] = {}
    for row, digest in enumerate(b.columns["sha256"].tolist()):
        digests.setdefault(digest, []).append(row)
    same = {
        (row, other)
        for row, digest in enumerate(a.columns["sha256"].tolist())
        for other in (digests.get(digest, []) if digest else [])
    }
    pairs = same | _look_alikes(a, b, max_distance)
    hashes = a.columns["phash"], b.columns["phash"]
    return [
        SharedImage(a.keys[row], b.keys[other], (row, other) in same, _distance(hashes[0][row], hashes[1][other]))
        for row, other in sorted(pairs, key=lambda pair: (a.keys[pair[0]], b.keys[pair[1]]))
    ]


def _look_alikes(a: ScoreTable, b: ScoreTable, max_distance: int) -> set[tuple[int, int]]:
    rows, others = np.flatnonzero(~is_flat(a)), np.flatnonzero(~is_flat(b))
    near = close_pairs(a.columns["phash"][rows], b.columns["phash"][others], max_distance)
    first, second = rows[near[:, 0]], others[near[:, 1]]
    if "thumbnail" in a.columns and "thumbnail" in b.columns and len(near):
        gap = thumbnail_difference(a.columns["thumbnail"][first], b.columns["thumbnail"][second])
        first, second = first[gap <= COPY_DIFFERENCE], second[gap <= COPY_DIFFERENCE]
    return set(zip(first.tolist(), second.tolist(), strict=True))


def _distance(a: np.uint64, b: np.uint64) -> int:
    return int(np.bitwise_count(a ^ b))


def refuse_shared(pairs: Sequence[SharedImage], first: str, second: str) -> None:
    """Refuse sets that share images.

    Args:
        pairs: from :func:`shared_images`.
        first: name of the first set, for the message.
        second: name of the second set.

    Raises:
        LeakError: there are pairs; it names the first ten.
    """
    if not pairs:
        return
    lines = [
        f"  {pair.first} = {pair.second} ({'same file' if pair.identical else f'copy, {pair.distance} bits apart'})"
        for pair in pairs[:NAMED_PAIRS]
    ]
    more = [f"  … and {len(pairs) - NAMED_PAIRS} more"] if len(pairs) > NAMED_PAIRS else []
    raise LeakError(
        f"{first} and {second}",
        expected="no image in both",
        got=f"{len(pairs)} shared:\n" + "\n".join(lines + more),
        remedy="take these images out of one of the two splits; accuracy measured on calibration images is too good",
    )


def distribution(table: ScoreTable, rows: NDArray[np.int64]) -> dict[str, dict[str, Any]]:
    """Compare the chosen set with the population, for the report; plain lists and numbers only.

    Args:
        table: scores of the population.
        rows: int64 row numbers of the chosen images.

    Returns:
        ``light`` (images by mean luma), ``pixels`` (pixels by luma) and, with labels, ``scale`` (objects by the side
        of a square of their area, in pixels of network input) and ``classes`` (pixels by class). Each holds ``name``,
        ``edges`` (bin edges) or ``labels``, ``unit``, and shares that sum to 1 (or 0 where there is nothing) as
        ``population`` and ``selection``.
    """
    luma = full_column(table, "luma_mean")
    edges = np.linspace(0, 256, HISTOGRAM_BINS + 1)
    light = (np.histogram(luma, edges)[0], np.histogram(luma[rows], edges)[0])
    found = {"light": _entry("Light: mean luma", *light, unit="luma, 0..255", edges=edges.tolist())}
    if "luma_histogram" in table.columns:
        values = np.asarray(table.columns["luma_histogram"], np.float64)
        pixels = (values.sum(axis=0), values[rows].sum(axis=0))
        found["pixels"] = _entry("Light: pixels", *pixels, unit="luma, 0..255", edges=edges.tolist())
    if has_labels(table):
        found |= {"scale": _scale(table, rows), "classes": _classes(table, rows)}
    return found


def _scale(table: ScoreTable, rows: NDArray[np.int64]) -> dict[str, Any]:
    areas = np.asarray(table.columns["object_areas"], np.int64)[:, FIRST_OBJECT_BIN:LAST_OBJECT_BIN]
    edges = [round(2 ** (power / 2), 3) for power in range(FIRST_OBJECT_BIN, LAST_OBJECT_BIN + 1)]
    unit = "side of a square of the same area, pixels of network input"
    return _entry("Scale: objects", areas.sum(axis=0), areas[rows].sum(axis=0), unit=unit, edges=edges)


def _classes(table: ScoreTable, rows: NDArray[np.int64]) -> dict[str, Any]:
    share = np.nan_to_num(np.asarray(table.columns["class_share"], np.float64))
    return _entry("Classes: pixels", share.sum(axis=0), share[rows].sum(axis=0), "", labels=list(table.class_names))


def _entry(
    name: str,
    population: NDArray[Any],
    selection: NDArray[Any],
    unit: str,
    edges: list[float] | None = None,
    labels: list[str] | None = None,
) -> dict[str, Any]:
    return {
        "name": name,
        "unit": unit,
        "edges": edges or [],
        "labels": labels or [],
        "population": _shares(population),
        "selection": _shares(selection),
    }


def _shares(amounts: NDArray[Any]) -> list[float]:
    total = float(amounts.sum())
    return [round(float(amount) / total, 6) if total else 0.0 for amount in amounts]
