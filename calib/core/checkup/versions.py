"""Version numbers and lists of pinned packages."""

from __future__ import annotations

import re
from collections.abc import Iterable


def release(version: str) -> tuple[int, ...]:
    """Take the leading release numbers of a version: ``2.13.0+cpu`` is ``(2, 13, 0)``; empty when there are none."""
    matched = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(int(part) for part in matched[1].split(".")) if matched else ()


def older(version: str, minimum: str) -> bool:
    """Say whether a version lies below another; trailing zeros do not count."""
    ours, theirs = list(release(version)), list(release(minimum))
    width = max(len(ours), len(theirs))
    return ours + [0] * (width - len(ours)) < theirs + [0] * (width - len(theirs))


def normalise(name: str) -> str:
    """Spell a distribution's name as indexes do: lower case, runs of ``-``, ``_`` and ``.`` as one ``-``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pinned(lines: Iterable[str]) -> dict[str, str]:
    """Read ``name==version`` lines; comments, blank lines and other requirements are passed over."""
    found = {}
    for line in lines:
        matched = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*==\s*([^\s;#]+)", line)
        if matched:
            found[normalise(matched[1])] = matched[2]
    return found


def lower_bounds(requirements: Iterable[str]) -> dict[str, str]:
    """Read the ``>=`` bounds of unconditional requirements, as a distribution's metadata lists them."""
    found = {}
    for requirement in requirements:
        matched = re.match(r"\s*([A-Za-z0-9][\w.-]*)[^;]*?>=\s*([\w.]+)", requirement)
        if matched and "extra ==" not in requirement:
            found[normalise(matched[1])] = matched[2]
    return found


def trt_release(number: int) -> str:
    """Spell TensorRT's version number: ``8601`` is 8.6.1 (up to 9.x, ``M*1000+m*100+p``), ``101401`` is 10.14.1."""
    unit = 10000 if number >= 100000 else 1000
    return f"{number // unit}.{number % unit // 100}.{number % 100}"
