"""The input's calibrated range against the preprocessing that was declared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from calib.core.cachelook import input_fingerprint
from calib.types.data import Preprocess

Verdict = Literal["fits", "narrow", "wide", "other"]
WIDER = 1.03
"""TensorRT's entropy calibrator ends ranges on a histogram edge up to 128/127 and a bin above the largest value."""
NARROWER = 0.7
"""Below this share of the largest possible value a set of ordinary pictures does not stay."""
PIXELS = 255.0


@dataclass(frozen=True)
class InputCheck:
    """What the calibrated range of the input says of the declared preprocessing.

    Attributes:
        verdict: ``fits``, ``narrow`` (dark pictures or clipping would explain it), ``wide`` (impossible with this
            preprocessing) or ``other`` (that of another, common preprocessing).
        low: smallest input that the preprocessing can give.
        high: largest one.
        amax: calibrated range.
        text: what to think of it.
    """

    verdict: Verdict
    low: float
    high: float
    amax: float
    text: str


def declared_range(spec: Preprocess) -> tuple[float, float]:
    """Compute the smallest and the largest input that a preprocessing can give, exactly.

    ``(pixel * scale - mean) / std`` is monotonic in the pixel, so the ends are those of pixel 0 and 255, rounded
    once to the input's type. Padding has a pixel value too and lies between.
    """
    channels = max(len(spec.mean), len(spec.std))
    mean, std = (np.broadcast_to(np.asarray(item, np.float64), channels) for item in (spec.mean, spec.std))
    ends = (np.array([[0.0], [PIXELS]]) * spec.scale - mean) / std
    if spec.dtype == "uint8":
        ends = np.clip(np.rint(ends), 0, PIXELS)
    ends = ends.astype(spec.dtype).astype(np.float64)
    return float(ends.min()), float(ends.max())


def check_input(amax: float, spec: Preprocess) -> InputCheck:
    """Compare the calibrated range of an input with what its preprocessing can give."""
    low, high = declared_range(spec)
    most = max(abs(low), abs(high))
    verdict, text = _judge(amax, most, spec)
    return InputCheck(verdict, low, high, amax, text)


def _judge(amax: float, most: float, spec: Preprocess) -> tuple[Verdict, str]:
    found = input_fingerprint(amax)
    if found.faulty:
        return "wide" if amax > most else "other", found.text
    if amax > WIDER * most:
        misread = misread_range(spec)
        if misread is not None and abs(amax / misread - 1) < WIDER - 1:
            return "wide", "the range of this preprocessing's float64 values read as float32"
        return "wide", f"no picture preprocessed so gives more than {most:.4g}; the range is that of {found.text}"
    if amax >= NARROWER * most:
        return "fits", "as wide as the preprocessing makes it"
    if found.code not in {"other", input_fingerprint(most).code}:
        return "other", f"the range is that of {found.text}"
    return "narrow", "dark pictures or a calibrator that clips would explain it; so would another preprocessing"


def misread_range(spec: Preprocess) -> float | None:
    """Largest float32 that appears when the float64 inputs of a preprocessing are read as float32.

    None where that is no finite number: the lower halves of most float64 values are arbitrary bits. Raw pixels have
    zeros there, and 255.0 reads as 3.75.
    """
    values = np.arange(256, dtype=np.float64)[:, None] * spec.scale
    read = ((values - np.asarray(spec.mean)) / np.asarray(spec.std)).ravel().view(np.float32)
    largest = float(np.abs(read).max())
    return largest if math.isfinite(largest) and largest < 1e6 else None
