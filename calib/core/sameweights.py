"""Whether two weights are of one layer: equal, rounded to INT8, or scaled by a folded batch normalisation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["same", "rounded", "folded", "scaled", "other", "shape"]
CLOSE = 2e-5
"""Largest difference of equal weights, as a share of their channel's largest magnitude: float32 in another order."""
EPSILONS = (0.0, 0.1)
"""Where the epsilon of a batch normalisation lies: 1e-5 in PyTorch, 1e-3 in networks from TensorFlow."""

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Normalisation:
    """A batch normalisation's statistics and affine part, each float64 ``[C]``.

    Attributes:
        name: the module.
        gamma: factor; ones where it has none.
        beta: offset; zeros where it has none.
        mean: running mean.
        var: running variance.
    """

    name: str
    gamma: Matrix
    beta: Matrix
    mean: Matrix
    var: Matrix

    def factor(self, epsilon: float) -> Matrix:
        """What folding multiplies each channel of a weight by: ``gamma / sqrt(var + epsilon)``."""
        return np.asarray(self.gamma / np.sqrt(self.var + epsilon))

    def bias(self, bias: Matrix | float, epsilon: float) -> Matrix:
        """The bias of a layer with this normalisation folded in."""
        return np.asarray(self.beta + (bias - self.mean) * self.factor(epsilon))


@dataclass(frozen=True)
class Likeness:
    """How one weight is like another.

    Attributes:
        kind: ``same``; ``rounded`` to its own INT8 grid; ``folded``: scaled by a known batch normalisation; ``scaled``
            by factors of unknown origin; ``other``; ``shape``: not even of the same shape.
        difference: the largest difference that is left, as a share of the channel's largest magnitude.
        normalisation: the one that was folded.
        epsilon: its epsilon, found from the factors.
    """

    kind: Kind
    difference: float
    normalisation: Normalisation | None = None
    epsilon: float = 0.0

    @property
    def sound(self) -> bool:
        """Whether they are weights of one layer."""
        return self.kind in {"same", "rounded", "folded"}


def rows_of(weight: NDArray[Any], *, transposed: bool, group: int) -> Matrix:
    """Lay a weight out with a row per output channel.

    Args:
        weight: ``[Cout, Cin / group, …]``, or ``[Cin, Cout / group, …]`` of a transposed convolution.
        transposed: of a transposed convolution.
        group: number of groups.

    Returns:
        float64 ``[Cout, n]``.
    """
    wide = np.asarray(weight, np.float64)
    if not transposed or wide.shape[0] % group:
        return wide.reshape(wide.shape[0], -1)
    split = wide.reshape(group, wide.shape[0] // group, wide.shape[1], -1)
    return split.transpose(0, 2, 1, 3).reshape(group * wide.shape[1], -1)


def compare(
    trained: Matrix,
    exported: Matrix,
    rounded: Matrix | None,
    norms: Mapping[str, Normalisation],
    close: float = CLOSE,
) -> Likeness:
    """Compare a layer's weight in a checkpoint with the one in a network.

    Args:
        trained: ``[Cout, n]`` of the checkpoint.
        exported: the network's.
        rounded: ``trained`` as fake quantization rounds it, for networks that carry the rounded weight; or None.
        norms: the checkpoint's batch normalisations.
        close: share of a channel's largest magnitude within which weights are equal.
    """
    if trained.shape != exported.shape:
        return Likeness("shape", 1.0)
    if _apart(trained, exported) <= close:
        return Likeness("same", _apart(trained, exported))
    if rounded is not None and _apart(rounded, exported) <= close:
        return Likeness("rounded", _apart(rounded, exported))
    found = [_scaled(item, exported, norms, close) for item in (trained, rounded) if item is not None]
    return min(found, key=lambda item: (not item.sound, item.kind != "scaled", item.difference))


def _apart(first: Matrix, second: Matrix) -> float:
    """Largest difference, as a share of the second's largest magnitude in the row; all-zero rows must agree."""
    largest = np.abs(second).max(1, initial=0.0)
    difference = np.abs(first - second).max(1, initial=0.0)
    share = difference / np.where(largest > 0, largest, 1.0)
    return float(np.where((largest > 0) | (difference > 0), share, 0.0).max(initial=0.0))


def _scaled(trained: Matrix, exported: Matrix, norms: Mapping[str, Normalisation], close: float) -> Likeness:
    """Explain the difference by a factor a channel, and the factors by a batch normalisation."""
    energy = (trained * trained).sum(1)
    factor = (trained * exported).sum(1) / np.where(energy > 0, energy, 1.0)
    difference = _apart(trained * factor[:, None], exported)
    if difference > close:
        return Likeness("other", difference)
    for norm in norms.values():
        epsilon = _epsilon(norm, factor, energy > 0, 10 * close)
        if epsilon is not None:
            return Likeness("folded", difference, norm, epsilon)
    return Likeness("scaled", difference)


def _epsilon(norm: Normalisation, factor: Matrix, alive: NDArray[np.bool_], close: float) -> float | None:
    """Find the epsilon with which a normalisation gives these factors; None where none does."""
    if norm.gamma.shape != factor.shape:
        return None
    told = alive & (norm.gamma != 0) & (factor != 0)
    if not told.any():
        return 0.0 if not factor[alive].any() and not norm.gamma[alive].any() else None
    lowest = np.flatnonzero(told)[int(np.argmin(norm.var[told]))]  # where epsilon weighs most
    epsilon = float((norm.gamma[lowest] / factor[lowest]) ** 2 - norm.var[lowest])
    epsilon = min(max(epsilon, EPSILONS[0]), EPSILONS[1])
    if norm.var.min() + epsilon <= 0:
        return None
    wanted = norm.factor(epsilon)[alive]
    apart = np.abs(wanted - factor[alive]) / np.maximum(np.abs(wanted), np.finfo(np.float64).tiny)
    dead = (wanted == 0) & (factor[alive] == 0)
    return epsilon if bool(np.all((apart <= close) | dead)) else None
