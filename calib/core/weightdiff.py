"""How one array of weights became another: permuted, transposed, scaled, rounded, zeroed, perturbed, replaced."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

SAME = 2e-6
"""Largest error, relative to the largest weight, that folding and exporting leave; float32 rounds to 6e-8."""
FEW_SHARE = 0.02


@dataclass(frozen=True)
class WeightChange:
    """What was done to an array of weights.

    Attributes:
        kind: ``same``, ``permuted``, ``transposed``, ``flipped``, ``rounded-fp16``, ``rounded-bf16``, ``quantized``,
            ``zeroed``, ``scaled``, ``offset``, ``few``, ``perturbed``, ``replaced`` or ``shape``.
        words: the change in words, with numbers.
        relative: root mean square of the change over that of the weights.
        details: numbers: axis, order, factor, share, …
    """

    kind: str
    words: str
    relative: float
    details: dict[str, Any] = field(default_factory=dict)


Test = Callable[[NDArray[np.float64], NDArray[np.float64], float], WeightChange | None]


def weight_change(before: NDArray[Any], after: NDArray[Any], tolerance: float = SAME) -> WeightChange:
    """Find out what turned one array of weights into another.

    Args:
        before: the reference's weights.
        after: the candidate's.
        tolerance: largest error, relative to the largest weight, that counts as none; weights that were read off an
            integer grid are known to half a step only.
    """
    one, other = np.asarray(before, np.float64), np.asarray(after, np.float64)
    squeezed = one.ndim != other.ndim and one.size == other.size and np.squeeze(one).shape == np.squeeze(other).shape
    if squeezed:  # axes of length 1 more or fewer; of one rank, they are axes that changed places
        other = other.reshape(one.shape)
    if one.shape != other.shape:
        moved = _transposed(one, other, tolerance)
        return moved or WeightChange("shape", f"shape {list(before.shape)} became {list(after.shape)}", np.inf)
    if _alike(one, other, tolerance):
        return WeightChange("same", "the same", _relative(one, other))
    for test in TESTS if tolerance <= SAME else COARSE_TESTS:
        found = test(one, other, tolerance)
        if found is not None:
            return found
    return _noise(one, other)


def _relative(before: NDArray[np.float64], after: NDArray[np.float64]) -> float:
    norm = float(np.sqrt(np.mean(before * before))) if before.size else 0.0
    error = float(np.sqrt(np.mean((after - before) ** 2))) if before.size else 0.0
    return error / norm if norm else (0.0 if error == 0 else np.inf)


def _alike(one: NDArray[np.float64], other: NDArray[np.float64], tolerance: float) -> bool:
    if not one.size:
        return True
    with np.errstate(invalid="ignore"):
        most = float(np.abs(one).max())
        return bool(np.nanmax(np.abs(one - other), initial=0.0) <= tolerance * most) and bool(
            (np.isfinite(one) == np.isfinite(other)).all()
        )


def _rounded(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    """Rounding to a shorter float: every weight is one of that type, and the nearest to its former self."""
    del tolerance
    with np.errstate(over="ignore"):
        half = before.astype(np.float32).astype(np.float16).astype(np.float64)
    short = {"rounded-fp16": (half, "float16")}
    bits = before.astype(np.float32).view(np.uint32)
    nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
    cut = bits & np.uint32(0xFFFF0000)
    short["rounded-bf16"] = (nearest.view(np.float32).astype(np.float64), "bfloat16")
    short["truncated-bf16"] = (cut.view(np.float32).astype(np.float64), "bfloat16, cut off")
    for kind, (values, name) in short.items():
        if np.array_equal(values, after) and not np.array_equal(values, before):
            relative = _relative(before, after)
            return WeightChange(kind, f"rounded to {name}: relative error {relative:.2g}", relative, {"type": name})
    return _cut_mantissa(before, after)


def _cut_mantissa(before: NDArray[np.float64], after: NDArray[np.float64]) -> WeightChange | None:
    """Fewer bits of mantissa, whichever type that stands for."""
    bits = after.astype(np.float32).view(np.uint32) & np.uint32(0x7FFFFF)
    if not bits.size or np.count_nonzero(after) < 8:
        return None
    union = int(np.bitwise_or.reduce(bits.reshape(-1)))
    kept = 23 - ((union & -union).bit_length() - 1) if union else 0
    most = np.abs(after - before) / np.maximum(np.abs(before), 1e-30)
    if kept > 16 or float(most.max()) > 2.0 ** (1 - kept) or kept < 2:
        return None
    words = f"cut to {kept} bits of mantissa: relative error {_relative(before, after):.2g}"
    return WeightChange("truncated", words, _relative(before, after), {"bits": kept})


def _transposed(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    for perm in itertools.islice(itertools.permutations(range(before.ndim)), 1, 24):
        moved = before.transpose(perm)
        if moved.shape != after.shape or not _alike(moved, after, tolerance):
            continue
        relative = _relative(before, after) if before.shape == after.shape else np.inf
        return WeightChange("transposed", f"axes in the order {list(perm)}", relative, {"perm": list(perm)})
    return None


def _permuted(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    """Slices along one axis in another order."""
    for axis in range(min(before.ndim, 2)):
        order = slice_order(np.moveaxis(before, axis, 0), np.moveaxis(after, axis, 0), tolerance)
        if order is not None:
            moved = sum(place != source for place, source in enumerate(order))
            words = f"{moved} of {len(order)} slices along axis {axis} changed places"
            return WeightChange("permuted", words, _relative(before, after), {"axis": axis, "order": order})
    return None


def slice_order(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float = SAME) -> list[int] | None:
    """For each slice of ``after`` along axis 0 the one of ``before`` that it is; None where it is no permutation."""
    count = before.shape[0]
    one, other = before.reshape(count, -1), after.reshape(count, -1)
    if count < 2 or count > 4096 or not one.shape[1]:
        return None
    scale = max(float(np.abs(one).max()), 1e-30)
    room = tolerance * scale * one.shape[1] + 1e-4 * float(np.abs(one.sum(axis=1)).max())
    if float(np.abs(np.sort(one.sum(axis=1)) - np.sort(other.sum(axis=1))).max()) > room:
        return None
    order: list[int] = []
    free = set(range(count))
    for place in range(count):
        near = sorted(free, key=lambda source: (float(np.abs(one[source] - other[place]).max()), abs(source - place)))
        if float(np.abs(one[near[0]] - other[place]).max()) > tolerance * scale:
            return None
        order.append(near[0])
        free.discard(near[0])
    return order if order != list(range(count)) else None


def _flipped(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    """Kernels mirrored, as between correlation and convolution."""
    for axes in ((2, 3), (2,), (3,)):
        if before.ndim > max(axes) and _alike(np.flip(before, axes), after, tolerance):
            return WeightChange("flipped", f"kernels mirrored along axes {list(axes)}", _relative(before, after))
    return None


def _few(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    changed = np.abs(after - before) > tolerance * max(float(np.abs(before).max()), 1e-30)
    count = int(np.count_nonzero(changed))
    if before.size < 64 or count > max(FEW_SHARE * before.size, 4):
        return None
    values = after[changed]
    if not values.any():
        return WeightChange(
            "zeroed", f"{count} of {before.size} set to zero", _relative(before, after), {"count": count}
        )
    words = f"{count} of {before.size} elements changed, the largest by {np.abs(after - before).max():.3g}"
    return WeightChange("few", words, _relative(before, after), {"count": count})


def _zeroed(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    zero = (after == 0) & (before != 0)
    count = int(np.count_nonzero(zero))
    if not count or not _alike(np.where(zero, 0.0, before), after, tolerance):
        return None
    what = _zero_words(zero)
    return WeightChange("zeroed", what, _relative(before, after), {"count": count})


def _zero_words(zero: NDArray[np.bool_]) -> str:
    for axis in range(min(zero.ndim, 2)):
        whole = zero.all(axis=tuple(other for other in range(zero.ndim) if other != axis))
        if whole.any() and int(zero.sum()) == int(whole.sum()) * zero.size // zero.shape[axis]:
            names = ", ".join(map(str, np.flatnonzero(whole)[:6].tolist()))
            return f"{int(whole.sum())} of {zero.shape[axis]} slices along axis {axis} set to zero ({names})"
    return f"{int(zero.sum())} of {zero.size} elements set to zero"


def _scaled(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    """One factor, or one factor a slice."""
    factor = _factor(before, after, tolerance)
    if factor is not None:
        words = f"all multiplied by {factor:.6g}"
        return WeightChange("scaled", words, _relative(before, after), {"factor": factor, "axis": None})
    for axis in range(min(before.ndim, 2)):
        factors = slice_factors(before, after, axis, tolerance)
        if factors is not None and before.size > before.shape[axis]:
            words = f"slices along axis {axis} multiplied by {min(factors):.6g} to {max(factors):.6g}"
            details = {"axis": axis, "factors": factors}
            return WeightChange("scaled", words, _relative(before, after), details)
    return None


def slice_factors(
    before: NDArray[np.float64], after: NDArray[np.float64], axis: int, tolerance: float = SAME
) -> list[float] | None:
    """The factor of each slice along an axis; None where some slice is no multiple of its former self."""
    found = []
    for one, other in zip(np.moveaxis(before, axis, 0), np.moveaxis(after, axis, 0), strict=True):
        factor = 1.0 if not one.any() and not other.any() else _factor(one, other, tolerance)
        if factor is None:
            return None
        found.append(factor)
    return found


def _factor(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> float | None:
    norm = float(np.vdot(before, before))
    if norm == 0:
        return None
    factor = float(np.vdot(before, after)) / norm
    return factor if factor and _alike(before * factor, after, max(1e-5, tolerance)) else None


def _offset(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    del tolerance
    moved = after - before
    middle = float(np.median(moved))
    if before.size < 2 or not middle or float(np.abs(moved - middle).max()) > 1e-4 * abs(middle):
        return None
    return WeightChange("offset", f"all moved by {middle:.6g}", _relative(before, after), {"offset": middle})


def _quantized(before: NDArray[np.float64], after: NDArray[np.float64], tolerance: float) -> WeightChange | None:
    """On an integer grid of eight bits or fewer, of the whole or of each slice along axis 0."""
    del tolerance
    if before.size < 16 or _relative(before, after) > 0.5:
        return None
    whole = _on_grid(after)
    if not whole and (after.ndim < 2 or after[0].size < 4 or not all(map(_on_grid, after))):
        return None
    levels = int(np.unique(after if whole else after[0]).size)
    words = f"on an integer grid ({levels} values): relative error {_relative(before, after):.2g}"
    return WeightChange("quantized", words, _relative(before, after), {"levels": levels, "per_channel": not whole})


def _on_grid(values: NDArray[np.float64]) -> bool:
    """Whether all values are whole multiples of the largest over 127, or over a smaller power of two less one."""
    most = float(np.abs(values).max(initial=0.0))
    if most == 0:
        return True
    for top in (127, 128, 7, 8):
        steps = values / (most / top)
        if float(np.abs(steps - np.rint(steps)).max()) < 2e-3:
            return True
    return False


TESTS: tuple[Test, ...] = (
    _rounded, _transposed, _permuted, _flipped, _few, _zeroed, _scaled, _offset, _quantized,
)  # fmt: skip
COARSE_TESTS: tuple[Test, ...] = (_transposed, _permuted, _flipped, _few, _zeroed, _scaled, _offset)
"""For weights that are on a grid anyway."""


def _noise(before: NDArray[np.float64], after: NDArray[np.float64]) -> WeightChange:
    relative = _relative(before, after)
    norm = float(np.linalg.norm(before) * np.linalg.norm(after))
    cosine = float(np.vdot(before, after)) / norm if norm else 0.0
    details = {"cosine": cosine, "share": float(np.mean(before != after))}
    if cosine > 0.7:
        words = f"{details['share']:.0%} of the elements changed, by {relative:.2g} of their size (cosine {cosine:.4f})"
        return WeightChange("perturbed", words, relative, details)
    return WeightChange("replaced", f"other weights altogether (cosine {cosine:.3f})", relative, details)
