"""Images and labels for training: read once, augmented anew at each use, in an order that a seed alone decides."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calib.core.preprocess import Geometry, geometry
from calib.edges.feeds import FeedReader
from calib.edges.images import read_picture
from calib.edges.labels.reader import LabelReader
from calib.edges.qat.task import Batch
from calib.errors import ManifestError, ModelError
from calib.stages.inputs import InputBinding
from calib.types.data import Dataset, Preprocess

CACHE_BYTES = 2 << 30
"""Decoded pictures and labels kept in memory."""
AHEAD = 3
"""Batches that are made while one is trained on."""
LEAST_CROP = 0.7
"""Smallest share of a side that a random crop keeps; half of the batches are not cropped at all."""


@dataclass(frozen=True)
class Augmentation:
    """What is done to one image.

    Attributes:
        flip: mirrored left to right.
        top: first row that is kept, as share of what may be cut off, 0..1.
        left: first column that is kept, as share of what may be cut off, 0..1.
        side: share of each side that is kept.
    """

    flip: bool = False
    top: float = 0.0
    left: float = 0.0
    side: float = 1.0

    def apply(self, plane: NDArray[Any]) -> NDArray[Any]:
        """Crop and mirror a picture or a label ``[H, W, …]``; values are copied, never mixed."""
        height, width = (max(1, round(side * self.side)) for side in plane.shape[:2])
        top = round((plane.shape[0] - height) * self.top)
        left = round((plane.shape[1] - width) * self.left)
        part = plane[top : top + height, left : left + width]
        return np.ascontiguousarray(part[:, ::-1] if self.flip else part)


UNCHANGED = Augmentation()


@dataclass(frozen=True)
class Example:
    """One image, ready for the network, its label and where the one lies in the other."""

    inputs: dict[str, NDArray[Any]]
    label: NDArray[np.int64]
    geometry: Geometry


class Examples:
    """Reads the images and labels of a split; safe to use from several threads.

    Args:
        dataset: with labels.
        bindings: what feeds each network input.
        void: label value to write where a pixel does not count.

    Raises:
        ManifestError: an input has files of its own beside the picture, which cannot be augmented with it.
    """

    def __init__(self, dataset: Dataset, bindings: Sequence[InputBinding], void: int) -> None:
        self._records = {record.key: record for record in dataset.records}
        self._reader = FeedReader(dataset, bindings)
        self._labels = LabelReader(dataset)
        self._spec = _picture_spec(bindings)
        self._bindings = tuple(bindings)
        self._void = void
        self._foreign: dict[str, Mapping[int, int]] = {}
        self._labelled: dict[str, int] = {}
        self._held: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
        self._bytes = 0
        self._lock = threading.Lock()
        self.keys = [record.key for record in dataset.records]
        self.may_crop = self._spec.size is not None

    @property
    def foreign(self) -> dict[int, int]:
        """Label values outside the class table, which do not count, to pixels, of the labels read so far."""
        total: Counter[int] = Counter()
        for found in list(self._foreign.values()):
            total.update(found)
        return dict(total)

    @property
    def labelled(self) -> int:
        """Pixels of a class of the manifest, in the labels read so far."""
        return sum(list(self._labelled.values()))

    def load(self, key: str, augmentation: Augmentation = UNCHANGED) -> Example:
        """Read an image and its label, augmented alike, the picture preprocessed as in calibration.

        Raises:
            ImageError: a file cannot be used.
        """
        picture, label = (augmentation.apply(plane) for plane in self._decoded(key))
        plan = geometry((picture.shape[0], picture.shape[1]), self._spec)
        return Example(dict(self._reader.feeds(key, picture)), label.astype(np.int64), plan)

    def batch(self, wanted: Sequence[tuple[str, Augmentation]]) -> Batch:
        """Read several images as one batch, network inputs in their order.

        Raises:
            ImageError: a file cannot be used.
            ModelError: their inputs differ in size.
        """
        examples = [self.load(key, augmentation) for key, augmentation in wanted]
        inputs = [_joined(item, [example.inputs[item.tensor.name] for example in examples]) for item in self._bindings]
        labels = [torch.from_numpy(example.label) for example in examples]
        return Batch(tuple(map(torch.from_numpy, inputs)), labels, [example.geometry for example in examples])

    def _decoded(self, key: str) -> tuple[NDArray[Any], NDArray[Any]]:
        held = self._held.get(key)
        if held is not None:
            return held
        record = self._records[key]
        found = self._labels.read(record)
        label = found.ids.astype(np.int32)
        label[found.ids == found.void] = self._void
        picture = read_picture(record.path, expected_size=(label.shape[0], label.shape[1])).pixels
        with self._lock:
            self._foreign[key] = found.foreign
            self._labelled[key] = int(np.count_nonzero(label != self._void))
            if self._bytes + picture.nbytes + label.nbytes <= CACHE_BYTES:
                self._bytes += picture.nbytes + label.nbytes
                self._held[key] = (picture, label)
        return picture, label


def _picture_spec(bindings: Sequence[InputBinding]) -> Preprocess:
    pictures = [item.source for item in bindings if isinstance(item.source, Preprocess) and not item.from_files]
    if len(pictures) != 1 or any(item.from_files for item in bindings):
        raise ManifestError(
            "network inputs",
            expected="one picture, and constants",
            got=", ".join(item.tensor.name for item in bindings),
            remedy="training augments the picture alone; export a network whose further inputs are constants",
        )
    return pictures[0]


def _joined(binding: InputBinding, arrays: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Join one network input of several images; constants whose batch axis is not open are there once."""
    shape = binding.tensor.shape
    if binding.is_constant and (not shape or shape[0] is not None):
        return arrays[0]
    if len({array.shape for array in arrays}) > 1:
        raise ModelError(
            f"network input {binding.tensor.name!r}",
            expected="images of one size in a batch",
            got=", ".join(sorted({"x".join(map(str, array.shape)) for array in arrays})),
            remedy="state a `size` in the preprocessing, or use --batch-size 1",
        )
    return np.concatenate(arrays)


@dataclass(frozen=True)
class Order:
    """Which image is used when: a new permutation each epoch, decided by the seed.

    Attributes:
        images: number of images.
        batch: images a step, over all processes.
        seed: of the permutations and augmentations.
        augment: whether images are augmented.
        crop: whether cropping is among it.
    """

    images: int
    batch: int
    seed: int
    augment: bool = True
    crop: bool = True

    def step(self, number: int, rank: int = 0, world: int = 1) -> list[tuple[int, Augmentation]]:
        """The images of one process at a step, with what is done to them.

        Over all processes they are the same images, whatever the number of processes.

        Args:
            number: step, from 0.
            rank: this process.
            world: number of processes; divides ``batch``.
        """
        side = self._side(number)
        return [self._one(number * self.batch + place, side) for place in range(rank, self.batch, world)]

    def _side(self, number: int) -> float:
        """Share of the sides kept by all crops of a step: one size a batch, so that labels stack."""
        if not (self.augment and self.crop):
            return 1.0
        rng = np.random.default_rng([self.seed, 1, number])
        kept = float(rng.uniform(LEAST_CROP, 1.0))
        return kept if rng.random() < 0.5 else 1.0

    def _one(self, position: int, side: float) -> tuple[int, Augmentation]:
        epoch, place = divmod(position, self.images)
        index = int(self._permutation(epoch)[place])
        if not self.augment:
            return index, UNCHANGED
        rng = np.random.default_rng([self.seed, 2, position])
        return index, Augmentation(bool(rng.random() < 0.5), float(rng.random()), float(rng.random()), side)

    def _permutation(self, epoch: int) -> NDArray[np.int64]:
        return np.random.default_rng([self.seed, 0, epoch]).permutation(self.images)


def prefetch(make: Callable[[int], Batch], first: int, workers: int, stop: int | None = None) -> Iterator[Batch]:
    """Make batches ahead of their use, in order.

    Args:
        make: makes the batch of a step; called from a thread of its own.
        first: the step to begin with.
        workers: batches in the making.
        stop: the step to end before, or None.
    """
    steps = count(first) if stop is None else iter(range(first, stop))
    with ThreadPoolExecutor(max(1, workers), "batches") as pool:
        waiting: list[Future[Batch]] = []
        try:
            for number in steps:
                waiting.append(pool.submit(make, number))
                if len(waiting) > max(AHEAD, workers):
                    yield waiting.pop(0).result()
            while waiting:
                yield waiting.pop(0).result()
        finally:
            for future in waiting:
                future.cancel()
