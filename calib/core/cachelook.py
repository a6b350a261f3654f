"""What a calibration cache gives away: preprocessing, dead and non-finite entries, names that do not travel."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from calib.core.trtcache import CacheEntry, CalibrationCache

INPUT_NAMES = re.compile(
    r"(?:.*/)?(?:serving_default_|actual_|net_|network_|model_|l_)?"
    r"(?:data|inputs?|images?|img|x|pixel_values|placeholder|(?:input|image)_(?:image|img|tensor|data|input))"
    r"_?(?:[._:]?[0-9]+)*(?::0)?\Z",
    re.IGNORECASE,
)
"""Names that exporters give an image input."""
UNORDERED_BELOW = 6000
"""Header numbers up to TensorRT 5, whose caches follow a hash table, not the network."""


@dataclass(frozen=True)
class Fingerprint:
    """What the input's range says of the preprocessing.

    Attributes:
        code: short key for machines.
        text: the same for people.
        faulty: whether the calibration data were wrong for certain.
    """

    code: str
    text: str
    faulty: bool = False


RANGES: tuple[tuple[float, float, Fingerprint], ...] = (
    (0.9, 1.1, Fingerprint("unit", "pixels in [0, 1] or [-1, 1]")),
    (1.98, 2.75, Fingerprint("imagenet", "ImageNet mean and standard deviation (2.64 at white, 2.12 at black)")),
    (120.0, 129.0, Fingerprint("centred", "pixels in [-128, 127]")),
    (145.0, 153.0, Fingerprint("caffe", "raw pixels less the Caffe mean, BGR (151.1 at white)")),
    (250.0, 257.0, Fingerprint("raw", "raw pixels in [0, 255]")),
)
"""Ranges are as wide as clipping by a calibrator makes them in public caches."""


def input_fingerprint(amax: float) -> Fingerprint:
    """Guess the preprocessing from amax of the network's input (``scale * 127``)."""
    if amax == 0:
        return Fingerprint("blank", "blank images only: every input value was 0", faulty=True)
    if not math.isfinite(amax) or abs(amax) > 1e30:
        text = "a float64 buffer read as float32, or uninitialised memory"
        return Fingerprint("garbage", text, faulty=True)
    if amax < 0:
        return Fingerprint("garbage", "a negative scale: the file is damaged", faulty=True)
    for low, high, found in RANGES:
        if low <= amax <= high:
            return found
    return Fingerprint("other", "no common preprocessing has this range")


@dataclass(frozen=True)
class CacheFindings:
    """Entries that deserve a look, by kind.

    Attributes:
        unnamed: keys the parser made up; they do not carry over to another TensorRT or another export.
        dead: scale 0; some TensorRT versions refuse to build.
        nonfinite: infinite or NaN scale.
        negative: scale below 0.
        duplicates: names that occur more than once.
    """

    unnamed: tuple[str, ...]
    dead: tuple[str, ...]
    nonfinite: tuple[str, ...]
    negative: tuple[str, ...]
    duplicates: tuple[str, ...]


def findings(cache: CalibrationCache) -> CacheFindings:
    """Sort the entries that deserve a look by kind, each list in file order."""

    def pick(test: Callable[[CacheEntry], bool]) -> tuple[str, ...]:
        return tuple(entry.name for entry in cache.entries if test(entry))

    return CacheFindings(
        unnamed=pick(lambda entry: entry.unnamed),
        dead=pick(lambda entry: entry.scale == 0),
        nonfinite=pick(lambda entry: not math.isfinite(entry.scale)),
        negative=pick(lambda entry: entry.scale < 0),
        duplicates=cache.duplicates,
    )


def in_network_order(cache: CalibrationCache) -> bool:
    """Tell whether a cache's entries stand in network order, inputs first: they do from TensorRT 6 on."""
    number = cache.header.number
    return cache.header.text != "1" and (number is None or number >= UNORDERED_BELOW)


def input_entry(cache: CalibrationCache) -> CacheEntry | None:
    """Answer the entry of the network's input: the first one where the cache is in network order.

    Older caches are not: there the first entry counts that has a name which exporters give an image input. None for an
    empty cache, and where there is no such name.
    """
    first = cache.entries[0] if cache.entries else None
    if first is not None and in_network_order(cache) and not first.unnamed:
        return first
    return next((entry for entry in cache.entries if INPUT_NAMES.match(entry.name)), None)
