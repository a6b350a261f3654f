"""Whether a stored evaluation is of these very networks, agrees with itself, and stays within the gate's limits."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from calib.core.maxdrop import Limit, Verdict, check_names, judge, order_verdicts

SCHEMA = 1
LARGEST = 1e9
"""No IoU and no difference in points is as large as this."""
ROUNDING = 1e-6
"""Most that recomputed means and differences may be off, in IoU points."""

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Measured:
    """The two networks of an evaluation that a gate is about: the float network and the candidate."""

    reference: Json
    candidate: Json


def network_digest(files: Mapping[str, str]) -> str:
    """One digest for a network of one or several files, as an evaluation records it.

    Args:
        files: sha256 by file name.
    """
    if len(files) == 1:
        return next(iter(files.values()))
    text = "".join(f"{name}:{digest}\n" for name, digest in sorted(files.items()))
    return hashlib.sha256(text.encode()).hexdigest()


def is_evaluation(document: Any) -> bool:
    """Whether a document has the shape of an ``evaluation.json`` of this schema."""
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        return False
    models, data = document.get("models"), document.get("data")
    return isinstance(data, dict) and isinstance(models, list) and all(_is_model(item) for item in models)


def _is_model(item: Any) -> bool:
    return (
        isinstance(item, dict)
        and _is_figure(item.get("miou"))
        and _holds(item.get("per_class"), _is_figure)
        and _holds(item.get("slices"), lambda entry: isinstance(entry, dict) and _is_figure(entry.get("miou")))
        and (item.get("vs_reference") is None or _is_comparison(item["vs_reference"]))
    )


def _is_comparison(value: Any) -> bool:
    parts = (value.get("per_class"), value.get("slices")) if isinstance(value, dict) else (None,)
    return all(_holds(part, _is_difference) for part in parts) and _is_difference(value.get("miou"))


def _is_difference(value: Any) -> bool:
    """Null, or ``{"delta", "ci95"}`` in points; either may be null."""
    if value is None:
        return True
    return isinstance(value, dict) and _is_figure(value.get("delta")) and _is_interval(value.get("ci95"))


def _is_interval(ends: Any) -> bool:
    if not isinstance(ends, list):
        return ends is None
    return len(ends) == 2 and None not in ends and all(map(_is_figure, ends)) and ends[0] <= ends[1]


def _is_figure(value: Any) -> bool:
    """Null or a number that float64 can hold; JSON also knows longer ones, NaN and infinities."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and abs(value) < LARGEST)


def _holds(value: Any, test: Callable[[Any], bool]) -> bool:
    return isinstance(value, dict) and all(map(test, value.values()))


def find_measured(document: Json, reference: str, candidate: str) -> Measured | str:
    """Find the two networks by digest; or say what is missing.

    Args:
        document: an evaluation.
        reference: digest of the float network.
        candidate: digest of the network that is to be released.
    """
    models = document["models"]
    base = next((item for item in models if item.get("name") == document.get("reference")), None)
    if base is None:
        return "has no reference network to lose against"
    if base.get("sha256") != reference:
        return f"its reference {base.get('name')!r} is not this float network"
    found = next((item for item in models if item.get("sha256") == candidate), None)
    return Measured(base, found) if found is not None else "does not hold the Q/DQ network of this build"


def evaluation_problems(measured: Measured) -> list[str]:
    """Say where the figures of an evaluation contradict each other."""
    found = [text for item in (measured.reference, measured.candidate) for text in _torn_means(item)]
    return found + list(_torn_differences(measured))


def _torn_means(item: Json) -> Iterator[str]:
    values = [value for value in item["per_class"].values() if value is not None]
    if not all(0 <= value <= 1 for value in [*values, item.get("miou")] if value is not None):
        yield f"{item.get('name')!r} has figures that are no IoU"
    elif values and not _close(item.get("miou"), sum(values) / len(values), 0.01):
        yield f"{item.get('name')!r}: mIoU {item.get('miou')} is not the mean of its classes"


def _torn_differences(measured: Measured) -> Iterator[str]:
    ours, base = measured.candidate, measured.reference
    against = ours.get("vs_reference")
    if against is None:
        yield "no differences from the reference"
        return
    pairs = [("mIoU", ours.get("miou"), base.get("miou"), against.get("miou"))]
    for kind, group in (("class", "per_class"), ("slice", "slices")):
        differences = against[group]
        pairs += [
            (f"{kind} {name}", _iou(ours[group].get(name)), _iou(base[group].get(name)), differences.get(name))
            for name in ours[group]
        ]
    for what, value, reference, entry in pairs:
        stated = None if entry is None else entry.get("delta")
        if value is None or reference is None:
            if stated is not None:
                yield f"{what}: a difference of {stated} points is stated, but no figures"
        elif not _close(stated, 100 * (value - reference), 1):
            yield f"{what}: a difference of {stated} points is stated, the figures give {100 * (value - reference):.4f}"


def _iou(entry: Json | float | None) -> float | None:
    return entry.get("miou") if isinstance(entry, Mapping) else entry


def _close(value: float | None, wanted: float, unit: float) -> bool:
    return value is not None and math.isclose(value, wanted, abs_tol=ROUNDING * unit, rel_tol=0)


def judge_measured(
    measured: Measured, limits: Sequence[Limit], gate_by: Literal["value", "interval"]
) -> tuple[Verdict, ...]:
    """Judge the candidate by every limit, failing ones first.

    Raises:
        UsageError: a limit names a class or slice that the evaluation does not have.
    """
    ours = measured.candidate
    check_names(limits, list(ours["per_class"]), list(ours["slices"]))
    verdicts = [
        judge(
            str(ours.get("name")), limit, *_difference(ours["vs_reference"], limit), by_interval=gate_by == "interval"
        )
        for limit in limits
    ]
    return order_verdicts(verdicts)


def _difference(against: Json, limit: Limit) -> tuple[float | None, tuple[float, float] | None]:
    group = against["miou"] if limit.kind == "miou" else against["per_class" if limit.kind == "class" else "slices"]
    entry = group if limit.kind == "miou" else group.get(limit.name)
    if entry is None:
        return None, None
    interval = entry.get("ci95")
    return entry.get("delta"), None if interval is None else (interval[0], interval[1])
