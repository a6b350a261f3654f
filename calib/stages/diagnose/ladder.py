"""The ladder: from the reference to what is deployed, each rung compared with the first and the one below."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.difference import Accumulator, Difference, Shift, spatial_shift
from calib.types.diagnosis import Stage

SAME_DB = 60.0
"""SQNR of the output from which two rungs are the same up to rounding."""
FLIPS = 0.02
"""Share of flipped pixels that a stage may cost before it is one where accuracy falls."""
SHIFTED = 1e-3
"""Relative error of an output from which a displacement is looked for."""
POINTS = 0.5
"""Points of mIoU likewise."""


@dataclass(frozen=True)
class Rung:
    """A way to run the network.

    Attributes:
        name: short, unique.
        title: for people.
        stage: what changes from the rung below to this one; None for the first.
        below: name of the rung it is compared with, besides the first.
        skipped: why it cannot run, or empty.
    """

    name: str
    title: str
    stage: Stage | None
    below: str | None = None
    skipped: str = ""


@dataclass(frozen=True)
class Standing:
    """What a rung reaches.

    Attributes:
        rung: which.
        output: its output against the first rung's.
        step: its output against that of the rung below.
        flips: share of the cells of the class map that differ from the first rung's, 0..1, or None without classes.
        step_flips: against the rung below.
        shift: displacement of its output on the worst image.
        accuracy: mIoU, slices and the like, where labels are there.
        images: key of each image to the relative error of its output.
        sizes: shape of its output and of the first rung's, where they differ.
    """

    rung: Rung
    output: Difference | None = None
    step: Difference | None = None
    flips: float | None = None
    step_flips: float | None = None
    shift: Shift | None = None
    accuracy: Mapping[str, Any] | None = None
    images: Mapping[str, float] = field(default_factory=dict)
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None


@dataclass
class _Meter:
    output: Accumulator = field(default_factory=Accumulator)
    step: Accumulator = field(default_factory=Accumulator)
    flipped: int = 0
    step_flipped: int = 0
    cells: int = 0
    worst: tuple[float, NDArray[Any], NDArray[Any]] | None = None
    images: dict[str, float] = field(default_factory=dict)
    sizes: tuple[tuple[int, ...], tuple[int, ...]] | None = None


class LadderMeter:
    """Adds up what every rung answers, an image at a time; what is kept does not grow with the images."""

    def __init__(self, rungs: Sequence[Rung]) -> None:
        self._rungs = rungs
        self._meters = {rung.name: _Meter() for rung in rungs if not rung.skipped}
        self._first = next(iter(self._meters))

    def add(self, key: str, outputs: Mapping[str, NDArray[Any]], classes: Mapping[str, NDArray[Any]]) -> None:
        """Add an image.

        Args:
            key: the image.
            outputs: output of every rung, ``[1, …]``.
            classes: class map of every rung, empty where there are no classes.
        """
        first = outputs[self._first]
        for rung in self._rungs:
            meter = self._meters.get(rung.name)
            if meter is None or rung.name not in outputs:
                continue
            own, below = outputs[rung.name], outputs.get(rung.below or "", first)
            if own.shape != first.shape:
                meter.sizes = (own.shape, first.shape)
            against = self._add_image(meter, key, own, first)
            if below is first:
                meter.step.merge(against)
            else:
                meter.step.add(own, below)
            self._add_flips(meter, rung, classes)

    @staticmethod
    def _add_image(meter: _Meter, key: str, own: NDArray[Any], first: NDArray[Any]) -> Accumulator:
        single = Accumulator()
        single.add(own, first)
        meter.output.merge(single)
        relative = single.difference.relative
        meter.images[key] = relative
        worst = meter.worst is None or relative > meter.worst[0]
        if worst and SHIFTED < relative < math.inf and own.ndim == 4 and own.shape == first.shape:
            meter.worst = relative, own, first
        return single

    def _add_flips(self, meter: _Meter, rung: Rung, classes: Mapping[str, NDArray[Any]]) -> None:
        own, first = classes.get(rung.name), classes.get(self._first)
        below = classes.get(rung.below or self._first)
        if own is None or first is None or below is None or own.shape != first.shape:
            return
        meter.cells += own.size
        meter.flipped += int(np.count_nonzero(own != first))
        meter.step_flipped += int(np.count_nonzero(own != below)) if own.shape == below.shape else own.size

    def standings(self, accuracy: Mapping[str, Mapping[str, Any]]) -> list[Standing]:
        """Every rung, the skipped ones too.

        Args:
            accuracy: what labels say of each rung, by name.
        """
        return [self._standing(rung, accuracy.get(rung.name)) for rung in self._rungs]

    def _standing(self, rung: Rung, accuracy: Mapping[str, Any] | None) -> Standing:
        meter = self._meters.get(rung.name)
        if meter is None:
            return Standing(rung)
        return Standing(
            rung=rung,
            output=meter.output.difference,
            step=meter.step.difference,
            flips=meter.flipped / meter.cells if meter.cells else None,
            step_flips=meter.step_flipped / meter.cells if meter.cells else None,
            shift=None if meter.worst is None else spatial_shift(_planes(meter.worst[1]), _planes(meter.worst[2])),
            accuracy=accuracy,
            images=dict(sorted(meter.images.items())),
            sizes=meter.sizes,
        )


def _planes(output: NDArray[Any]) -> NDArray[Any]:
    """Channels first, whatever the layout: the channel axis is the shorter of the two candidates."""
    planes: NDArray[Any] = output[0] if output.shape[1] <= output.shape[3] else np.moveaxis(output[0], -1, 0)
    return planes


def points_lost(standing: Standing, below: Standing | None) -> float | None:
    """Points of mIoU that a stage costs, or None without labels."""
    if below is None or standing.accuracy is None or below.accuracy is None:
        return None
    before, after = below.accuracy.get("miou"), standing.accuracy.get("miou")
    return None if before is None or after is None else 100 * (before - after)


def falls(standing: Standing, below: Standing | None) -> bool:
    """Whether accuracy falls on the way to a rung: in mIoU where labels are there, in flips, in NaN."""
    if standing.step is None:
        return False
    lost = points_lost(standing, below)
    if math.isinf(standing.step.relative) or (lost is not None and lost > POINTS):
        return True
    return standing.step_flips is not None and standing.step_flips > FLIPS


def differs(standing: Standing) -> bool:
    """Whether a rung answers otherwise than the one below, beyond rounding."""
    return standing.step is not None and standing.step.sqnr_db < SAME_DB
