"""What a calibration cache gives away: the preprocessing, by the range of the network's input."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from calib.core.trtcache import CalibrationCache

INPUT_NAMES = re.compile(
    r"(?:.*/)?(?:serving_default_|actual_|net_|network_|model_|l_|keras_|rescaling_|(?:zero_padding|conv)2d_(?:[0-9]+_)?)?"
    r"(?:data|inputs?|images?|img|x|pixel_values|placeholder|frames?|rgb|tensorrtinputph"
    r"|(?:input|image)_?(?:images?|imgs?|tensors?|data|input|blob|node|layer|frame|rgb|arrays?|placeholder))"
    r"_?(?:[._:]?[0-9]+)*(?::0)?\Z",
    re.IGNORECASE,
)
"""Names that exporters give an image input."""
IMPLAUSIBLE = 1e30
"""Amax beyond this is no activation's: bytes of another type were read as float32."""
MINUTE = 127 * 2.0**-95
"""Amax below this, but not 0, is no activation's either: its scale has leading zeros, which TensorRT does not write.
Digits were lost at the end of the line, or integers were read as float32."""
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
    (115.0, 132.0, Fingerprint("centred", "pixels in [-128, 127]")),
    (143.0, 156.0, Fingerprint("caffe", "raw pixels less the Caffe mean, BGR (151.1 at white)")),
    (230.0, 263.0, Fingerprint("raw", "raw pixels in [0, 255]")),
)
"""Down to what clipping by calibrators leaves in public caches, up to the 3 % that TensorRT's bins may add."""


def input_fingerprint(amax: float) -> Fingerprint:
    """Guess the preprocessing from amax of the network's input (``scale * 127``)."""
    if amax == 0:
        return Fingerprint("blank", "blank images only: every input value was 0", faulty=True)
    if not math.isfinite(amax) or abs(amax) > IMPLAUSIBLE:
        text = "a float64 buffer read as float32, or uninitialised memory"
        return Fingerprint("garbage", text, faulty=True)
    if amax < 0:
        return Fingerprint("garbage", "a negative scale: the file is damaged", faulty=True)
    if amax < MINUTE:
        return Fingerprint("integers", "an integer buffer read as float32, or a line cut short", faulty=True)
    for low, high, found in RANGES:
        if low <= amax <= high:
            return found
    return Fingerprint("other", "no common preprocessing has this range")


def in_network_order(cache: CalibrationCache) -> bool:
    """Tell whether a cache's entries stand in network order, inputs first: they do from TensorRT 6 on."""
    number = cache.header.number
    return cache.header.text != "1" and (number is None or number >= UNORDERED_BELOW)
