"""TensorRT releases and the header numbers they write, as far as this version of calib knows them."""

from __future__ import annotations

from collections.abc import Mapping

from calib.core.trtcache import header_version

MINORS: Mapping[int, frozenset[int]] = {
    4: frozenset({0}), 5: frozenset({0, 1}), 6: frozenset({0}), 7: frozenset({0, 1, 2}),
    8: frozenset({0, 2, 4, 5, 6}), 9: frozenset({0, 1, 2, 3}), 10: frozenset(range(17)),
}  # fmt: skip
"""Released minor versions by major version (NVIDIA's release notes, up to 10.16)."""


def judge_number(number: int) -> str:
    """Say what is wrong with a header number; empty where a known TensorRT writes it."""
    version = header_version(number)
    if version is None:
        return _misspelt(number)
    major, minor, _ = (int(part) for part in version.split("."))
    if major >= 11:
        return f"TensorRT {version} reads no calibration caches: they ended with 10.x"
    if minor in MINORS.get(major, ()):
        return ""
    return f"there is no TensorRT {major}.{minor} that calib knows"


def _misspelt(number: int) -> str:
    """Recognise the number of TensorRT 10 by the formula of TensorRT 9, which some exporters still use."""
    minor, patch = number // 100 % 10, number % 100
    if number // 1000 == 10:
        right = 10 * 10000 + minor * 100 + patch
        return f"TensorRT 10.{minor}.{patch} writes {right}, not {number}: the formula of TensorRT 9 was used"
    return "no TensorRT writes such a number"
