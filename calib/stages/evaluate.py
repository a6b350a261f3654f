"""Evaluate: every network on every image of a split, down to the counts of each image.

An image is decoded once for all networks, and the reference runs first, because flips need both predictions. What is
kept of an image is a few hundred numbers, so memory does not grow with the images.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.core.boundary import band_width, window_range
from calib.core.confusion import count_flips, count_label, count_pixels
from calib.core.outputshape import refuse_single_cell
from calib.core.preprocess import Geometry, geometry
from calib.core.scoremap import OutputReading, Prediction, planes_of, predict
from calib.core.scores import area_factor
from calib.core.smallobjects import Objects, count_found, count_objects, find_objects
from calib.core.tally import BAND, CROPPED, SEEN, VOID, Sparse, image_layout, network_layout, to_sparse
from calib.errors import ImageError
from calib.stages.worst import WorstMaps, image_miou
from calib.types.data import Preprocess
from calib.types.runner import Feeds, Runner, to_host


@dataclass(frozen=True)
class Scene:
    """An image as it is evaluated.

    Attributes:
        key: its key in the manifest.
        pixels: uint8 ``[H, W, 3]`` RGB.
        label: unsigned ``[H, W]`` train ids; the number of classes and above is void.
    """

    key: str
    pixels: NDArray[np.uint8]
    label: NDArray[Any]


@dataclass(frozen=True)
class Contender:
    """A network under evaluation.

    Attributes:
        name: unique.
        runner: runs it; its outputs include the one that is read.
        feed: from an image to its inputs with batch axis; networks that share a function share the result.
        reading: what its output is.
        rows: batch length it demands; an image is repeated to fill it.
    """

    name: str
    runner: Runner
    feed: Callable[[Scene], Feeds]
    reading: OutputReading
    rows: int = 1


@dataclass(frozen=True)
class ImageTally:
    """Counts of one image.

    Attributes:
        key: the image.
        image: counts that no network changes (:func:`calib.core.tally.image_layout`).
        networks: counts under each network, in their order (:func:`calib.core.tally.network_layout`).
        foreign: of each network, predictions outside the class table to pixels.
        ties_known: of each network, whether ties could be counted.
        remarks: of each network, what is odd about its output.
    """

    key: str
    image: Sparse
    networks: tuple[Sparse, ...]
    foreign: tuple[Mapping[int, int], ...]
    ties_known: tuple[bool, ...]
    remarks: tuple[tuple[str, ...], ...]


@dataclass
class Clock:
    """Seconds that threads spent in all, and of those in the networks."""

    total: float = 0.0
    inference: float = 0.0
    lock: Lock = field(default_factory=Lock)

    def add(self, total: float, inference: float) -> None:
        """Add one image's times."""
        with self.lock:
            self.total += total
            self.inference += inference


@dataclass(frozen=True)
class _View:
    """The part of an image that the networks saw, and what is computed of its label once for all of them."""

    label: NDArray[Any]
    marks: NDArray[np.uint8]
    void: NDArray[np.bool_]
    void_pixels: int
    objects: Objects
    distance: int
    plan: Geometry


class Evaluator:
    """Scores images under several networks; :meth:`score` may be called from several threads.

    Args:
        contenders: networks; the reference is the first if there is one.
        classes: number of classes.
        preprocess: how pictures become the main network input.
        dark_luma: luma below this (0..255) is dark.
        has_reference: whether the first network is one.
        worst: keeps the class maps of the worst images, for pictures; None keeps none.
    """

    def __init__(
        self,
        contenders: Sequence[Contender],
        classes: int,
        preprocess: Preprocess,
        dark_luma: int,
        *,
        has_reference: bool,
        worst: WorstMaps | None = None,
    ) -> None:
        self._contenders = contenders
        self._classes = classes
        self._preprocess = preprocess
        self._dark_luma = dark_luma
        self._has_reference = has_reference
        self._layout = network_layout(classes)
        self._image_layout = image_layout(classes)
        self._worst = worst
        self.clock = Clock()

    def score(self, scene: Scene) -> ImageTally:
        """Count one image under every network.

        Raises:
            ImageError: picture and label differ in size.
            ModelError: a network fails, or its output is no class map.
        """
        started = time.perf_counter()
        view = self._look(scene)
        vectors, asides = [], []
        reference: tuple[NDArray[Any], Sparse] | None = None
        inference = 0.0
        for contender, prediction, spent in self._predictions(scene, view.plan, self._contenders):
            inference += spent
            before = None if reference is None else reference[0]
            vectors.append(self._count(view, prediction, before, f"{contender.name}, {scene.key}"))
            asides.append((prediction.foreign, prediction.ties is not None, prediction.remarks))
            self._offer(contender.name, scene.key, (prediction.ids, vectors[-1]), reference)
            if self._has_reference and reference is None:
                reference = prediction.ids, vectors[-1]
        image = to_sparse(self._describe(scene, view))
        self.clock.add(time.perf_counter() - started, inference)
        foreign, ties, remarks = zip(*asides, strict=True)
        return ImageTally(scene.key, image, tuple(vectors), foreign, ties, remarks)

    def class_maps(self, scene: Scene, wanted: Collection[str]) -> tuple[Geometry, dict[str, NDArray[Any]]]:
        """One image under some networks, for pictures: where it was seen, and the class maps there by name."""
        plan = self._plan(scene)
        found = None if self._worst is None else self._worst.find(scene.key, wanted)
        if found is not None:
            return plan, found
        kept = [contender for contender in self._contenders if contender.name in wanted]
        return plan, {own.name: prediction.ids for own, prediction, _ in self._predictions(scene, plan, kept)}

    def _predictions(
        self, scene: Scene, plan: Geometry, contenders: Sequence[Contender]
    ) -> Iterator[tuple[Contender, Prediction, float]]:
        feeds: dict[int, Feeds] = {}
        for contender in contenders:
            key = id(contender.feed)
            if key not in feeds:
                feeds[key] = contender.feed(scene)
            started = time.perf_counter()
            outputs = contender.runner.run(filled(feeds[key], contender.rows))
            spent = time.perf_counter() - started
            planes = self._planes(contender, outputs, plan, scene.key)
            prediction = predict(planes, contender.reading, plan, plan.covered.size, self._classes)
            del outputs, planes  # the runtime's memory goes before the next network runs
            yield contender, prediction, spent

    def _planes(self, contender: Contender, outputs: Mapping[str, Any], plan: Geometry, key: str) -> NDArray[Any]:
        array = to_host(outputs[contender.reading.name])
        place = f"output {contender.reading.name!r} of {contender.name}, {key}"
        planes: NDArray[Any] = planes_of(array, contender.reading, self._classes, plan.network, place)[0]
        refuse_single_cell(planes.shape, plan.network, place)
        return planes

    def _offer(
        self, name: str, key: str, own: tuple[NDArray[Any], Sparse], reference: tuple[NDArray[Any], Sparse] | None
    ) -> None:
        """Offer an image's class maps as those of one of the worst images, but for the reference's own."""
        if self._worst is None or (self._has_reference and reference is None):
            return
        gain = image_miou(own[1], self._layout)
        maps = {name: own[0]}
        if reference is not None and gain is not None:
            before = image_miou(reference[1], self._layout) or 0.0
            gain = gain - before if gain < before else None
            maps[self._contenders[0].name] = reference[0]
        self._worst.offer(name, key, gain, maps)

    def _plan(self, scene: Scene) -> Geometry:
        size = (scene.pixels.shape[0], scene.pixels.shape[1])
        if scene.label.shape != size:
            height, width = scene.label.shape
            raise ImageError(
                scene.key,
                expected=f"a label as large as its image, {size[1]} x {size[0]} pixels",
                got=f"{width} x {height}",
                remedy="export image and label at the same size; labels are never resized",
            )
        return geometry(size, self._preprocess)

    def _look(self, scene: Scene) -> _View:
        plan = self._plan(scene)
        label = np.ascontiguousarray(plan.covered.of(scene.label))
        luma = plan.covered.of(cv2.cvtColor(scene.pixels, cv2.COLOR_RGB2GRAY))
        distance = band_width(plan.covered.size)
        low, high = window_range(label, distance)
        marks = (luma < self._dark_luma).view(np.uint8) | ((low != high).view(np.uint8) << 1)
        void = label >= self._classes
        objects = find_objects(label, self._classes, area_factor(plan.source, self._preprocess))
        return _View(label, marks, void, int(np.count_nonzero(void)), objects, distance, plan)

    def _count(self, view: _View, prediction: Prediction, reference: NDArray[Any] | None, place: str) -> Sparse:
        vector = np.zeros(self._layout.length, np.int64)
        part = {name: self._layout.view(vector, name) for name, _ in self._layout.parts}
        ids = prediction.ids
        outlined = ids.copy()
        np.copyto(outlined, np.iinfo(ids.dtype).max, where=view.void)
        low, high = window_range(outlined, view.distance)
        right = np.zeros(view.objects.area.size, np.int64)
        matrices = part["confusion"], part["dark"], part["boundary"]
        count_pixels(view.label, ids, low, high, view.marks, *matrices, view.objects.map, right)
        if reference is not None:
            count_flips(view.label, ids, reference, view.marks, part["flips"], part["flipped_class"])
        part["found"][...] = count_found(view.objects, right, self._classes)
        part["ties"][0], part["lost"][0] = prediction.ties or 0, prediction.lost
        counted, scored = int(part["confusion"].sum()), view.label.size - view.void_pixels
        if counted != scored:
            raise AssertionError(f"{place}: {counted} pixels counted of {scored}")
        return to_sparse(vector)

    def _describe(self, scene: Scene, view: _View) -> NDArray[np.int64]:
        vector = np.zeros(self._image_layout.length, np.int64)
        part = {name: self._image_layout.view(vector, name) for name, _ in self._image_layout.parts}
        part["size"][:] = scene.label.shape
        part["pixels"][SEEN] = view.label.size
        part["pixels"][CROPPED] = scene.label.size - view.label.size
        count_label(view.label, view.marks, part["pixels"][VOID : BAND + 1], part["band"])
        part["objects"][...] = count_objects(view.objects, self._classes)
        return vector


def filled(feeds: Feeds, rows: int) -> Feeds:
    """Repeat an image to the batch length a network demands."""
    if rows == 1:
        return feeds
    return {
        name: np.repeat(array, rows, axis=0) if array.ndim and array.shape[0] == 1 else array
        for name, array in feeds.items()
    }
