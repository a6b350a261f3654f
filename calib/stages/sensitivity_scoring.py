"""Score the units of a network on images: class counts, flips and noise of each, against the base network."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.core.preprocess import Geometry, geometry
from calib.core.scoremap import OutputReading, planes_of, predict
from calib.core.sensitivity.counts import (
    BASE,
    TOGETHER,
    ImageCounts,
    ImageRecord,
    count_image,
    count_label,
    noise_power,
)
from calib.errors import ImageError
from calib.stages.evaluate import Scene, filled
from calib.stages.sensitivity import RelayRunner
from calib.types.data import Preprocess
from calib.types.runner import Feeds

AsArray = Callable[[Any], NDArray[Any]]


@dataclass(frozen=True)
class _View:
    """An image as all its networks are scored on it."""

    key: str
    label: NDArray[Any]
    dark: NDArray[np.bool_]
    plan: Geometry


@dataclass(frozen=True)
class _Seen:
    """What the base network answers on an image."""

    planes: NDArray[Any]
    ids: NDArray[Any]
    power: float


@dataclass(frozen=True)
class Networks:
    """What is run on every image.

    Attributes:
        units: runs the base network and each unit alone.
        together: runs the network with every unit switched: inputs to the output that is scored.
        as_array: views a value of the runtime as an array.
    """

    units: RelayRunner
    together: Callable[[Feeds], Any]
    as_array: AsArray


class UnitScorer:
    """Scores images; :meth:`score` may be called from several threads.

    Args:
        networks: what is run.
        reading: what the output that is scored is.
        classes: number of classes.
        preprocess: how pictures become the main network input.
        feed: from an image to the network's inputs.
        rows: batch length the network demands.
        dark_luma: luma below this (0..255) is dark.
    """

    def __init__(
        self,
        networks: Networks,
        reading: OutputReading,
        classes: int,
        preprocess: Preprocess,
        feed: Callable[[Scene], Feeds],
        rows: int,
        dark_luma: int,
    ) -> None:
        self._networks, self._reading, self._classes = networks, reading, classes
        self._preprocess, self._feed, self._rows, self._dark_luma = preprocess, feed, rows, dark_luma

    def score(self, scene: Scene, wanted: Collection[int]) -> ImageRecord:
        """Count an image under the base network, and under each of some units alone.

        Args:
            scene: the image.
            wanted: numbers of units; :data:`TOGETHER` for all of them at once.

        Raises:
            ImageError: picture and label differ in size.
            ModelError: a network fails, or its output is no class map.
        """
        view = self._look(scene)
        feeds = filled(self._feed(scene), self._rows)
        base = self._networks.units.base(feeds)
        seen = self._read(view, base[-1][self._reading.name], signal=True)
        counts = {BASE: self._count(view, seen, seen)}
        if TOGETHER in wanted:
            counts[TOGETHER] = self._compare(view, self._networks.together(feeds), seen)
        units = sorted(number for number in wanted if number >= 0)
        for number, value in self._networks.units.units(feeds, base, units):
            counts[number] = self._compare(view, value, seen)
        return ImageRecord(scene.key, count_label(view.label, view.dark, self._classes), counts)

    @property
    def _is_scored(self) -> bool:
        """Whether the output holds scores, not class numbers."""
        return self._reading.kind != "ids"

    def _look(self, scene: Scene) -> _View:
        size = (scene.pixels.shape[0], scene.pixels.shape[1])
        if scene.label.shape != size:
            raise ImageError(
                scene.key,
                expected=f"a label as large as its image, {size[1]} x {size[0]} pixels",
                got=f"{scene.label.shape[1]} x {scene.label.shape[0]}",
                remedy="export image and label at the same size; labels are never resized",
            )
        plan = geometry(size, self._preprocess)
        luma = plan.covered.of(cv2.cvtColor(scene.pixels, cv2.COLOR_RGB2GRAY))
        label = np.ascontiguousarray(plan.covered.of(scene.label))
        return _View(scene.key, label, luma < self._dark_luma, plan)

    def _read(self, view: _View, value: Any, *, signal: bool = False) -> _Seen:
        place = f"output {self._reading.name!r}, {view.key}"
        array = self._networks.as_array(value)
        planes = planes_of(array, self._reading, self._classes, view.plan.network, place)[0]
        ids = predict(planes, self._reading, view.plan, view.plan.covered.size, self._classes).ids
        return _Seen(planes, ids, noise_power(planes, np.zeros_like(planes)) if signal and self._is_scored else 0.0)

    def _compare(self, view: _View, value: Any, base: _Seen) -> ImageCounts:
        return self._count(view, base if value is None else self._read(view, value), base)

    def _count(self, view: _View, seen: _Seen, base: _Seen) -> ImageCounts:
        by_class, flips, flipped = count_image(view.label, view.dark, seen.ids, base.ids, self._classes)
        noise = 0.0 if seen is base or not self._is_scored else noise_power(seen.planes, base.planes)
        return ImageCounts(by_class, flips, flipped, np.array([base.power, noise]))


def merge_records(known: Mapping[str, ImageRecord], record: ImageRecord) -> ImageRecord:
    """Join what was counted of an image before with what is counted now."""
    before = known.get(record.key)
    if before is None:
        return record
    return ImageRecord(record.key, record.label, before.networks | record.networks)
