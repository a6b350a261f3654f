"""Resize as the ONNX specification words it, in exact arithmetic: the referee where two runtimes disagree.

Source coordinates are fractions, so a tie is a tie and no float32 scale moves a sample to its neighbour. One axis is a
matrix from input to output cells; a picture is resized by one matrix an axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

HALF = Fraction(1, 2)


@dataclass(frozen=True)
class ResizeSpec:
    """How one Resize samples.

    Attributes:
        mode: ``nearest``, ``linear`` or ``cubic``.
        coordinates: ``coordinate_transformation_mode``.
        nearest: ``nearest_mode``.
        cubic: ``cubic_coeff_a``.
    """

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic: float = -0.75


def source_coordinate(spec: ResizeSpec, place: int, before: int, after: int, scale: Fraction) -> Fraction | None:
    """Where an output cell lies in the input, as a fraction; None for a transformation that is not known here.

    Args:
        spec: how it samples.
        place: output cell.
        before: cells of the input.
        after: cells of the output.
        scale: output over input, as given or as the lengths' ratio.
    """
    mode = spec.coordinates
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and after > 1):
        return (place + HALF) / scale - HALF
    if mode == "pytorch_half_pixel":
        return Fraction(0)
    if mode == "asymmetric":
        return place / scale
    if mode == "align_corners":
        return Fraction(0) if after == 1 else Fraction(place * (before - 1), after - 1)
    if mode == "half_pixel_symmetric":
        exact = before * scale
        centre = Fraction(before, 2)
        offset = centre * (1 - Fraction(after) / exact)
        return offset + (place + HALF) / scale - HALF
    return None


def nearest_cell(mode: str, coordinate: Fraction) -> int:
    """The cell nearest to a coordinate under a ``nearest_mode``."""
    if mode == "floor":
        return math.floor(coordinate)
    if mode == "ceil":
        return math.ceil(coordinate)
    if mode == "round_prefer_ceil":
        return math.floor(coordinate + HALF)
    return math.ceil(coordinate - HALF)


def axis_matrix(spec: ResizeSpec, before: int, after: int, scale: Fraction | None = None) -> NDArray[np.float64] | None:
    """Matrix ``[after, before]`` that resizes one axis; None for a mode that is not known here."""
    matrix = np.zeros((after, before))
    for place in range(after):
        coordinate = source_coordinate(spec, place, before, after, scale or Fraction(after, before))
        weights = None if coordinate is None else _weights(spec, coordinate)
        if weights is None:
            return None
        for cell, weight in weights:
            matrix[place, min(max(cell, 0), before - 1)] += weight
    return matrix


def _weights(spec: ResizeSpec, coordinate: Fraction) -> list[tuple[int, float]] | None:
    if spec.mode == "nearest":
        return [(nearest_cell(spec.nearest, coordinate), 1.0)]
    base = math.floor(coordinate)
    share = float(coordinate - base)
    if spec.mode == "linear":
        return [(base, 1.0 - share), (base + 1, share)]
    if spec.mode == "cubic":
        return [(base + offset, _cubic(abs(share - offset), spec.cubic)) for offset in (-1, 0, 1, 2)]
    return None


def _cubic(distance: float, a: float) -> float:
    """Keys' kernel (IEEE Trans. ASSP 29, 1981)."""
    if distance <= 1:
        return (a + 2) * distance**3 - (a + 3) * distance**2 + 1
    return a * distance**3 - 5 * a * distance**2 + 8 * a * distance - 4 * a if distance < 2 else 0.0


def spec_of(parameters: Any) -> ResizeSpec:
    """Read a Resize node's parameters."""
    return ResizeSpec(
        str(parameters.get("mode", "nearest")),
        str(parameters.get("coordinate_transformation_mode", "half_pixel")),
        str(parameters.get("nearest_mode", "round_prefer_floor")),
        float(parameters.get("cubic_coeff_a", -0.75)),
    )


def resize(
    value: NDArray[Any], spec: ResizeSpec, size: Sequence[int], scales: Sequence[float] | None = None
) -> NDArray[np.float64] | None:
    """Resize an array to ``size``; None where the specification's mode is not known here.

    Args:
        value: any rank.
        spec: how it samples.
        size: length of every axis of the answer.
        scales: scales as the node gives them; without, the lengths' ratio.
    """
    answer = np.asarray(value, np.float64)
    for axis, after in enumerate(size):
        before = answer.shape[axis]
        scale = _exact_scale(before, after, None if scales is None else scales[axis])
        if before == after and scale == 1:
            continue
        matrix = axis_matrix(spec, before, after, scale)
        if matrix is None:
            return None
        answer = np.moveaxis(np.tensordot(matrix, answer, axes=(1, axis)), 0, axis)
    return answer


def _exact_scale(before: int, after: int, given: float | None) -> Fraction:
    """The scale that was meant: the lengths' ratio, where the given float32 is only its rounding."""
    exact = Fraction(after, before)
    if given is None or abs(given - float(exact)) <= 2e-7 * float(exact):
        return exact
    return Fraction(given).limit_denominator(1 << 20)


def same_sampling(one: ResizeSpec, other: ResizeSpec, before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether two ways to sample are one at these lengths."""
    for length, result in zip(before, after, strict=True):
        if length == result:
            continue
        matrices = [axis_matrix(spec, length, result) for spec in (one, other)]
        if matrices[0] is None or matrices[1] is None or not np.allclose(matrices[0], matrices[1], atol=1e-12):
            return False
    return True
