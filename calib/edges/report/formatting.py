"""How reports write numbers and names: pure text in, text out."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MISSING = "–"
"""Shown where a number is absent or not finite."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
_UNITS = ("B", "kB", "MB", "GB", "TB")


def visible(text: str) -> str:
    r"""Replace what cannot stand in HTML and XML, or would reorder the line, by a visible ``\u202e`` form.

    Tensor names and file names may hold control characters, bytes that are no UTF-8 (as lone surrogates)
    and bidirectional overrides; tab and newline stay.
    """
    return _INVISIBLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def number(value: float | None, digits: int = 4) -> str:
    """Write a number with ``digits`` significant digits, without trailing zeros; integers in full."""
    if value is None or not math.isfinite(value):
        return MISSING
    if isinstance(value, int):
        return count(value)
    return f"{value:.{digits}g}"


def count(value: int) -> str:
    """Write a count with thin spaces between thousands."""
    return f"{value:,}".replace(",", "\u202f")


def share(value: float | None, digits: int = 3) -> str:
    """Write a share 0..1 as percent with ``digits`` significant digits.

    A share that is not zero never reads as zero, nor one below 1 as all.
    """
    if value is None or not math.isfinite(value):
        return MISSING
    percent = value * 100
    if percent == 0:
        return "0\u202f%"
    if abs(percent) < 0.0001:
        return f"{'<' if percent > 0 else '>-'}0.0001\u202f%"
    if 99.9999 < percent < 100:
        return ">99.9999\u202f%"
    if 99 < percent < 100:
        return f"{float(f'{percent:.4f}'):.6g}\u202f%"
    return f"{float(f'{percent:.{digits}g}'):.10g}\u202f%"


def shares(values: Sequence[float | None]) -> list[str]:
    """Write a column of shares 0..1 as percent, all with the decimals that give the largest three digits.

    A share that is not zero never reads as zero.
    """
    known = [abs(100 * value) for value in values if value is not None and math.isfinite(value)]
    largest = max(known, default=0.0)
    decimals = 3 if largest < 0.9995 else 2 if largest < 9.995 else 1
    return [_fixed(value, decimals) for value in values]


def _fixed(value: float | None, decimals: int) -> str:
    if value is None or not math.isfinite(value):
        return MISSING
    if value and abs(100 * value) < 0.5 * 10**-decimals:
        return f"<{10**-decimals:.{decimals}f}\u202f%"
    return f"{100 * value:.{decimals}f}\u202f%" if value else "0\u202f%"


def bits(value: float | None) -> str:
    """Write bits with sign and two decimals; what rounds to nothing is ``0``."""
    if value is None or not math.isfinite(value):
        return MISSING
    text = f"{value:+.2f}"
    return "0" if text in ("+0.00", "-0.00") else text


def ratio(value: float | None) -> str:
    """Write a ratio as ``×1.8``."""
    if value is None or not math.isfinite(value):
        return MISSING
    return f"×{value:.3g}"


def file_size(size: int) -> str:
    """Write a file size with decimal units (1 kB = 1000 B)."""
    value, unit = float(size), 0
    while value >= 999.5 and unit < len(_UNITS) - 1:
        value, unit = value / 1000, unit + 1
    return f"{size}\u202fB" if unit == 0 else f"{value:.3g}\u202f{_UNITS[unit]}"


def plural(n: int, one: str, many: str | None = None) -> str:
    """Write ``1 tensor``, ``2 tensors``."""
    return f"{count(n)} {one if n == 1 else many or one + 's'}"


def listed(items: list[str], most: int = 4) -> str:
    """Join names for a sentence, the first ``most`` of them: ``a, b, c and 4 more``."""
    if len(items) > most:
        return f"{', '.join(items[:most])} and {len(items) - most} more"
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))
