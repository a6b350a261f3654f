"""Where a Resize samples: its settings read from the graph, its source positions, and PyTorch's beside them.

Formulas are those of the ONNX operator (https://onnx.ai/onnx/operators/onnx__Resize.html) and of PyTorch's
``interpolate``. Nearest neighbours are chosen in exact rational arithmetic: what float32 makes of a position on a
rounding boundary differs between runtimes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import Node
from calib.core.lint.subject import Subject, ints, number, text

LONGEST = 8192
"""Output lengths beyond this are judged by their first so many positions."""
ASSUMED = 64
"""Length that an axis of unknown length is given to judge a mode by."""
HALVES = frozenset({"half_pixel", "pytorch_half_pixel", "half_pixel_symmetric"})


@dataclass(frozen=True)
class Axis:
    """One axis that a Resize changes.

    Attributes:
        index: counted from 0.
        before: length of the input, None where dynamic.
        after: length of the output, None where dynamic.
        scale: as given; None where sizes are.
    """

    index: int
    before: int | None
    after: int | None
    scale: float | None

    @property
    def lengths(self) -> tuple[int, int] | None:
        """Lengths to judge a mode by: the real ones, or assumed ones of the same scale; None without either."""
        if self.before is not None and self.after is not None and min(self.before, self.after) > 0:
            return self.before, self.after
        if self.scale is not None and self.scale > 0:
            return ASSUMED, max(1, math.floor(ASSUMED * self.scale))
        return None


@dataclass(frozen=True)
class Resize:
    """The settings of a Resize or Upsample node.

    Attributes:
        node: the node.
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinates: coordinate transformation mode; ``asymmetric`` below opset 11, which has no other.
        rounding: nearest mode.
        antialias: whether it filters while shrinking.
        policy: keep_aspect_ratio_policy.
        by: whether the file states scales or sizes, or the network computes them as it runs.
        axes: the axes whose length changes, as far as lengths are known.
        sizes: output sizes as stated, None where they are not constant.
    """

    node: Node
    mode: str
    coordinates: str
    rounding: str
    antialias: bool
    policy: str
    by: Literal["scales", "sizes", "run-time scales", "run-time sizes"]
    axes: tuple[Axis, ...]
    sizes: tuple[float, ...] | None

    @property
    def label(self) -> str:
        """Settings for people."""
        rounding = f", {self.rounding}" if self.mode == "nearest" else ""
        return f"{self.mode}, {self.coordinates}{rounding}"


def read_resizes(subject: Subject) -> Iterator[Resize]:
    """Read every Resize and Upsample of the main graph, in network order."""
    for node in subject.nodes("Resize", "Upsample"):
        yield _read(node, subject)


def _read(node: Node, subject: Subject) -> Resize:
    opset = subject.network.opset
    old = node.op_type == "Upsample" or opset < 11
    scales, sizes = map(_sound, _targets(node, subject, old))
    mode = {"bilinear": "linear"}.get(text(node, "mode", "nearest"), text(node, "mode", "nearest"))
    return Resize(
        node=node,
        mode=mode,
        coordinates="asymmetric" if old else text(node, "coordinate_transformation_mode", "half_pixel"),
        rounding="floor" if old else text(node, "nearest_mode", "round_prefer_floor"),
        antialias=bool(number(node, "antialias", 0)),
        policy=text(node, "keep_aspect_ratio_policy", "stretch"),
        by=_by(node, old, scales, sizes),
        axes=tuple(_changed(node, subject, scales, sizes)),
        sizes=sizes,
    )


def _targets(node: Node, subject: Subject, old: bool) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Read constant scales and sizes; an empty constant counts as left out."""
    attribute = node.attributes.get("scales")
    if isinstance(attribute, tuple) and old:
        return tuple(float(item) for item in attribute), None
    scales = subject.numbers(node.input(1 if old else 2)) or None
    return scales, None if old else subject.numbers(node.input(3)) or None


def stated(node: Node, subject: Subject) -> tuple[str, tuple[float, ...], str, tuple[float, ...]]:
    """Answer the constant scales and sizes of a node as stated, sound or not, each with its name."""
    scales, sizes = _targets(node, subject, node.op_type == "Upsample" or subject.network.opset < 11)
    return "scales", scales or (), "sizes", sizes or ()


def _sound(numbers: tuple[float, ...] | None) -> tuple[float, ...] | None:
    """Leave out what is no scale or size; a rule of its own reports it."""
    sound = numbers is not None and all(math.isfinite(item) and item > 0 for item in numbers)
    return numbers if sound else None


def _by(
    node: Node, old: bool, scales: tuple[float, ...] | None, sizes: tuple[float, ...] | None
) -> Literal["scales", "sizes", "run-time scales", "run-time sizes"]:
    if scales is not None:
        return "scales"
    if sizes is not None:
        return "sizes"
    return "run-time sizes" if not old and node.input(3) else "run-time scales"


def _changed(
    node: Node, subject: Subject, scales: tuple[float, ...] | None, sizes: tuple[float, ...] | None
) -> Iterator[Axis]:
    before, after = subject.network.shapes.get(node.input(0)), subject.network.shapes.get(node.outputs[0])
    rank = len(before) if before is not None else len(after or scales or sizes or ())
    axes = [axis % rank for axis in ints(node, "axes") or range(rank)] if rank else []
    for place, index in enumerate(axes):
        scale = scales[place] if scales is not None and place < len(scales) else None
        size = int(sizes[place]) if sizes is not None and place < len(sizes) else None
        length = None if before is None else before[index]
        made = size or (None if after is None or index >= len(after) else after[index])
        axis = Axis(index, length, made, scale)
        if _changes(axis, stated=scales is not None or sizes is not None):
            yield axis


def _changes(axis: Axis, *, stated: bool) -> bool:
    if axis.scale is not None and axis.scale != 1:
        return True
    if axis.before is None or axis.after is None:
        return stated and axis.scale is None and axis.after is not None and axis.index > 1
    return axis.before != axis.after


def positions(coordinates: str, before: int, after: int, scale: float | None = None) -> NDArray[np.float64] | None:
    """Answer the source position of every output, in source pixels; None for a mode this does not know.

    Args:
        coordinates: coordinate transformation mode.
        before: input length.
        after: output length.
        scale: as stated; the ratio of the lengths by default.
    """
    at = np.arange(min(after, LONGEST), dtype=np.float64)
    ratio = after / before if scale is None else scale
    half = (at + 0.5) / ratio - 0.5
    adjustment = after / (ratio * before)
    known = {
        "half_pixel": half,
        "pytorch_half_pixel": half if after > 1 else np.zeros(1),
        "half_pixel_symmetric": before / 2 * (1 - adjustment) + half,
        "align_corners": at * ((before - 1) / (after - 1)) if after > 1 else np.zeros(1),
        "asymmetric": at / ratio,
        "tf_half_pixel_for_nn": (at + 0.5) / ratio,
    }
    return known.get(coordinates)


def pytorch_gap(resize: Resize, before: int, after: int, scale: float | None = None) -> float:
    """Answer how far, in source pixels, the positions are at most from the nearer of PyTorch's two conventions.

    0 where PyTorch has the same. Positions are clamped to the axis first: outside it the edge repeats.
    """
    found = positions(resize.coordinates, before, after, scale)
    if found is None:
        return math.inf
    gaps = []
    for convention in ("half_pixel", "align_corners"):
        reference = positions(convention, before, after, scale if convention == "half_pixel" else None)
        if reference is not None:
            difference = np.clip(found, 0, before - 1) - np.clip(reference, 0, before - 1)
            gaps.append(float(np.abs(difference).max(initial=0.0)))
    return min(gaps)


def shift(resize: Resize, before: int, after: int, scale: float | None = None) -> float:
    """Answer the mean displacement against half-pixel sampling, in output pixels; positive is to the right."""
    found, reference = (positions(mode, before, after, scale) for mode in (resize.coordinates, "half_pixel"))
    if found is None or reference is None:
        return math.nan
    return float(np.mean(reference - found)) * after / before


def exact_ratio(axis: Axis, before: int, after: int) -> Fraction:
    """Answer the scale that was meant, as a fraction: that of the lengths unless the stated one is another."""
    if axis.scale is None or abs(axis.scale * before - after) < 1e-3 * before:
        return Fraction(after, before)
    return Fraction(axis.scale).limit_denominator(4096) or Fraction(after, before)


def nearest(coordinates: str, rounding: str, before: int, after: int, ratio: Fraction) -> NDArray[np.int64] | None:
    """Answer the source index of every output under nearest sampling, exactly; None for a mode this does not know."""
    exact = _exact(coordinates, before, after, ratio)
    if exact is None:
        return None
    top, bottom = exact
    rounded = {
        "floor": top // bottom,
        "ceil": -(-top // bottom),
        "round_prefer_floor": -(-(2 * top - bottom) // (2 * bottom)),
        "round_prefer_ceil": (2 * top + bottom) // (2 * bottom),
    }.get(rounding)
    return None if rounded is None else np.clip(rounded, 0, before - 1)


def _exact(coordinates: str, before: int, after: int, ratio: Fraction) -> tuple[NDArray[np.int64], int] | None:
    """Source positions as fractions with one denominator."""
    at = np.arange(min(after, LONGEST), dtype=np.int64)
    up, down = ratio.numerator, ratio.denominator
    if coordinates in HALVES:
        lone = coordinates == "pytorch_half_pixel" and after == 1
        return (np.zeros(1, np.int64), 1) if lone else ((2 * at + 1) * down - up, 2 * up)
    if coordinates == "align_corners":
        return (at * (before - 1), after - 1) if after > 1 else (np.zeros(1, np.int64), 1)
    if coordinates == "tf_half_pixel_for_nn":
        return (2 * at + 1) * down, 2 * up
    return (at * down, up) if coordinates == "asymmetric" else None


def pytorch_nearest(before: int, after: int, ratio: Fraction) -> tuple[NDArray[np.int64], ...]:
    """Answer the source indices of PyTorch's ``nearest`` and ``nearest-exact``."""
    at = np.arange(min(after, LONGEST), dtype=np.int64)
    up, down = ratio.numerator, ratio.denominator
    found = (at * down // up, (2 * at + 1) * down // (2 * up))
    return tuple(np.minimum(item, before - 1) for item in found)


def undecided(resize: Resize, before: int, after: int, ratio: Fraction) -> tuple[int, ...]:
    """List the outputs whose exact position is a rounding boundary that float32 arithmetic cannot meet reliably.

    A scale that float32 holds exactly (2, 3, 0.5) meets its boundaries exactly; 64/26 or 6/20 do not.
    """
    exact = _exact(resize.coordinates, before, after, ratio)
    if exact is None or Fraction(float(np.float32(float(ratio)))) == ratio:
        return ()
    top, bottom = exact
    on_boundary = top % bottom == 0 if resize.rounding in {"floor", "ceil"} else (2 * top + bottom) % (2 * bottom) == 0
    inside = (top > 0) & (top < (before - 1) * bottom)
    return tuple(int(item) for item in np.flatnonzero(on_boundary & inside))


@dataclass(frozen=True)
class Rows:
    """Output lengths that one stated scale yields, by the arithmetic that multiplies it.

    Attributes:
        exact: ``floor(input * scale)`` of the float32 scale, as the specification has it.
        single: the product rounded to float32, as runtimes compute it.
        double: of the ratio that was rounded to the scale, in float64, as PyTorch computes it.
    """

    exact: int
    single: int
    double: int


def rows(axis: Axis) -> Rows | None:
    """Answer the output lengths of a stated scale where they differ: it is a hair from a whole number of rows."""
    if axis.before is None or axis.scale is None or axis.before < 1:
        return None
    scale = np.float32(axis.scale)
    exact = Fraction(float(scale)) * axis.before
    meant = round(exact)
    if abs(exact - meant) > Fraction(1, 500):
        return None
    single = math.floor(float(np.float32(axis.before) * scale))
    found = Rows(math.floor(exact), single, math.floor(axis.before * (meant / axis.before)))
    return None if found.exact == found.single == found.double else found
