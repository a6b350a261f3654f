"""A calibration cache against the network it is used with: is it this network's, and do its ranges fit what is seen."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from calib.types.diagnosis import Cause
from calib.types.rangetable import RangeTable

FAR_BITS = 1.5
"""A range this far from the observed one, in powers of two, does not fit: calibrators clip about one."""
STALE_SHARE = 0.25
"""Share of ranges that do not fit from which the whole cache is of another network or other data."""
ADVICE = "calibrate again: `calib build` with this network and the preprocessing that is deployed"


@dataclass(frozen=True)
class CacheCheck:
    """What a cache is worth.

    Attributes:
        compared: ranges that have an observed tensor of their name.
        far: tensor to bits between its range and the observed one, those that do not fit, worst first.
        missing: observed tensors without a range.
        foreign: ranges without a tensor.
        digest_differs: sha256 of the network that the cache was made for, and of this one, where they differ.
    """

    compared: int
    far: Mapping[str, float]
    missing: tuple[str, ...]
    foreign: tuple[str, ...]
    digest_differs: tuple[str, str] | None = None

    @property
    def stale(self) -> bool:
        """Whether it is another network's, or other data's."""
        if not self.compared:
            return bool(self.foreign)
        return len(self.far) > STALE_SHARE * self.compared


def check_cache(
    table: RangeTable, observed: Mapping[str, float], digests: tuple[Sequence[str], Sequence[str]]
) -> CacheCheck:
    """Hold a cache against observed activations.

    Args:
        table: the cache.
        observed: largest magnitude by tensor, over the images that were looked at.
        digests: sha256 of the network that the cache was made of, and of the networks at hand; either may be empty.
    """
    far = {}
    ranges = {item.name: item.amax for item in table}
    common = [name for name in observed if name in ranges]
    for name in common:
        bits = _bits(ranges[name], observed[name])
        if abs(bits) > FAR_BITS:
            far[name] = bits
    made, here = digests
    differs = (made[0], here[0]) if made and here and not set(made) & set(here) else None
    return CacheCheck(
        compared=len(common),
        far=dict(sorted(far.items(), key=lambda entry: -abs(entry[1]))),
        missing=tuple(name for name in observed if name not in ranges),
        foreign=tuple(name for name in ranges if name not in observed),
        digest_differs=differs,
    )


def _bits(own: float, seen: float) -> float:
    if not (own > 0 and math.isfinite(own)):
        return math.inf if seen > 0 else 0.0
    return math.log2(own / seen) if seen > 0 else 0.0


def cache_cause(check: CacheCheck, source: str) -> Cause | None:
    """The cause where a cache is stale."""
    other = check.digest_differs
    if not check.stale and other is None:
        return None
    evidence = [
        f"{len(check.far)} of {check.compared} ranges are more than {FAR_BITS} bits from what the network holds"
    ]
    if check.far:
        name, bits = next(iter(check.far.items()))
        evidence.append(f"the farthest: {name}, {bits:+.1f} bits")
    if other is not None:
        evidence.append(f"it was made of the network {other[0][:12]}…, this one is {other[1][:12]}…")
    if check.foreign:
        evidence.append(f"{len(check.foreign)} of its entries name no tensor of this network")
    first = next(iter(check.far), "")
    title = f"{source}: a stale calibration cache, made of another network or other data"
    return Cause(
        "quantization", "stale-cache", title, first, first, evidence=tuple(evidence), remedy=ADVICE,
        confidence=0.95 if check.stale else 0.7, severity="fault" if check.stale else "remark",
        details={"far": len(check.far), "compared": check.compared},
    )  # fmt: skip
