"""Whether statistics can be true, and how recomputed ranges and caches differ from stored ones."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from calib.core.graph import FLOAT_TYPES, Network
from calib.core.trtcache import CalibrationCache
from calib.types.gate import few
from calib.types.statistics import TensorStatistics


def statistics_problems(statistics: Mapping[str, TensorStatistics], network: Network) -> list[str]:
    """Say what statistics of this network cannot be.

    Returns:
        findings in words; empty where every tensor is known to the network and agrees with itself.
    """
    names = [item.name for item in network.activations if item.name in statistics]
    foreign = sorted(set(statistics) - set(names))
    missing = [
        item.name for item in network.activations if item.name not in statistics and item.elem_type in FLOAT_TYPES
    ]
    found = []
    if foreign:
        found.append(f"hold tensors this network does not have: {few(foreign)}")
    if missing:
        found.append(f"lack tensors of this network: {few(missing)}")
    torn = [f"{item.name!r} ({why})" for item in statistics.values() for why in _torn(item)]
    if torn:
        found.append(f"contradict themselves: {few(torn, 3)}")
    return found


def _torn(item: TensorStatistics) -> Iterator[str]:
    """Contradictions within one tensor's statistics."""
    if item.negative.shape != item.positive.shape or (item.negative < 0).any() or (item.positive < 0).any():
        yield "histogram"
    elif int(item.magnitude.sum()) != item.count or item.nonfinite < 0:
        yield "count"
    elif item.count and not (math.isfinite(item.minimum) and item.minimum <= item.maximum < math.inf):
        yield "extremes"
    elif item.count and not _reaches(item):
        yield "extremes outside the histogram"
    elif item.count and item.tail.size and not _ends_at_amax(item):
        yield "tail"


def _reaches(item: TensorStatistics) -> bool:
    """Whether the outermost occupied bin is the one that the largest magnitude falls into."""
    occupied = np.flatnonzero(item.magnitude)
    return int(occupied[-1]) == math.floor(item.amax / item.bin_width)


def _ends_at_amax(item: TensorStatistics) -> bool:
    """Whether the kept largest magnitudes ascend to the amax."""
    return bool((np.diff(item.tail) >= 0).all()) and float(item.tail[-1]) == float(np.float32(item.amax))


def ranges_difference(stored: Any, expected: Mapping[str, Any]) -> list[str]:
    """Say how a stored ``ranges.json`` differs from the one that the statistics give.

    Args:
        stored: what the file holds.
        expected: the document to compare with.
    """
    wanted = json.loads(json.dumps(expected))
    if stored == wanted:
        return []
    if not _is_ranges(stored):
        return ["not a table of ranges"]
    if stored.get("calibrators") != wanted["calibrators"]:
        return ["made by other calibrators, or with other parameters"]
    ours, theirs = ({item["name"]: item for item in document["tensors"]} for document in (wanted, stored))
    if list(ours) != list(theirs):
        return [f"other tensors: {few(sorted(set(ours) ^ set(theirs)) or ['in another order'])}"]
    return [text for name in ours for text in _entry_difference(ours[name], theirs[name])] or ["other content"]


def _is_ranges(stored: Any) -> bool:
    return isinstance(stored, dict) and isinstance(stored.get("tensors"), list) and all(
        isinstance(item, dict) and isinstance(item.get("name"), str) for item in stored["tensors"]
    )  # fmt: skip


def _entry_difference(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    if wanted == found:
        return
    ranges = found.get("ranges")
    for label, entry in wanted["ranges"].items():
        other = ranges.get(label) if isinstance(ranges, dict) else None
        amax = other.get("amax") if isinstance(other, dict) else None
        if amax != entry["amax"]:
            yield f"{wanted['name']!r} by {label}: amax {amax!r}, the statistics give {entry['amax']!r}"
            return
    yield f"{wanted['name']!r}"


def cache_difference(stored: CalibrationCache, expected: CalibrationCache) -> list[str]:
    """Say how a stored cache differs from the one that the statistics give; empty where the bytes are the same."""
    if stored.render() == expected.render():
        return []
    if stored.header.text != expected.header.text:
        return [f"header {stored.header.text!r} in place of {expected.header.text!r}"]
    ours, theirs = expected.scales, stored.scales
    lost, extra = [name for name in ours if name not in theirs], [name for name in theirs if name not in ours]
    found = [f"lacks {few(lost)}"] if lost else []
    found += [f"holds {few(extra)}, which the network does not have"] if extra else []
    changed = [name for name in ours if name in theirs and ours[name] != theirs[name]]
    if changed:
        name = changed[0]
        found.append(
            f"{_scales(len(changed))}: {name!r} has amax {theirs[name] * 127:.6g} in place of {ours[name] * 127:.6g}"
        )
    return found or ["the same scales in other bytes (order, line ends or spelling)"]


def _scales(count: int) -> str:
    return "a scale was changed" if count == 1 else f"{count} scales were changed"


TOLERANCE = 1e-3
"""Share of a tensor's amax that two runtimes or processors may differ by."""


def extremes_outside(
    recorded: Mapping[str, TensorStatistics], seen: Mapping[str, TensorStatistics], tolerance: float = TOLERANCE
) -> list[str]:
    """List tensors whose values, on some of the calibration images, lie outside the extremes recorded over all.

    Args:
        recorded: over all images.
        seen: over some of them, run again.
        tolerance: share of the tensor's amax that is let pass.
    """
    return [
        f"{name!r} reaches {_span(item)}, recorded is {_span(recorded[name])}"
        for name, item in seen.items()
        if name in recorded and item.count and not _inside(item, recorded[name], tolerance)
    ]


def extremes_not_reached(
    recorded: Mapping[str, TensorStatistics], seen: Mapping[str, TensorStatistics], tolerance: float = TOLERANCE
) -> list[str]:
    """List tensors whose recorded extremes or number of values all the calibration images, run again, do not give."""
    found = []
    for name, item in recorded.items():
        again = seen.get(name)
        if again is None or again.count != item.count:
            found.append(f"{name!r} has {0 if again is None else again.count} values, recorded are {item.count}")
        elif item.count and not _inside(item, again, tolerance):
            found.append(f"{name!r} reaches {_span(again)} only, recorded is {_span(item)}")
    return found


def _inside(inner: TensorStatistics, outer: TensorStatistics, tolerance: float) -> bool:
    slack = tolerance * max(inner.amax, outer.amax)
    return outer.count > 0 and outer.minimum - slack <= inner.minimum and inner.maximum <= outer.maximum + slack


def _span(item: TensorStatistics) -> str:
    return f"[{item.minimum:.4g}, {item.maximum:.4g}]" if item.count else "nothing"


def image_disagreements(images: Mapping[str, str], others: Mapping[str, Sequence[tuple[str, str]]]) -> list[str]:
    """Compare the provenance's images with those that further files of the build name.

    Args:
        images: sha256 by image.
        others: file name to its (image, sha256) pairs.
    """
    found = []
    for file, pairs in others.items():
        differing = sorted(dict(pairs).items() ^ images.items())
        if differing or len(pairs) != len(images):
            found.append(
                f"{file} names other images than provenance.json: {few(sorted({key for key, _ in differing}))}"
            )
    return found
