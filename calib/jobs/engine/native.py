"""The build's calibration images as batches for TensorRT's own calibration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calib.core.engine.shapes import ShapeRange, calibration_batch
from calib.edges.feeds import FeedReader, bind_dataset
from calib.edges.files import sha256_file
from calib.edges.manifest import load_dataset
from calib.edges.tensorrt.calibration import InputSpec
from calib.errors import ImageError, UsageError
from calib.jobs.build.request import describe_inputs
from calib.jobs.engine.request import EngineRequest
from calib.jobs.engine.source import EngineSource
from calib.stages.inputs import InputBinding
from calib.types.data import Dataset
from calib.types.gate import few
from calib.types.progress import Progress


@dataclass(frozen=True)
class ImageStream:
    """Calibration images, batch by batch.

    Attributes:
        keys: images, in the order they are read.
        batch: images a batch; it divides their number.
        inputs: shape and type of every input's batch.
        reader: loads an image.
        progress: shows how far it is.
    """

    keys: Sequence[str]
    batch: int
    inputs: Sequence[InputSpec]
    reader: FeedReader
    progress: Progress

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        """Yield each batch: every input as a C-contiguous array."""
        with self.progress.task("calibrate in TensorRT", len(self.keys)) as task:
            for start in range(0, len(self.keys), self.batch):
                feeds = [self.reader.load(key) for key in self.keys[start : start + self.batch]]
                names = [item.name for item in self.inputs]
                yield {
                    name: np.ascontiguousarray(np.concatenate([feed[name] for feed in feeds], axis=0)) for name in names
                }
                task.advance(self.batch)

    @property
    def shapes(self) -> dict[str, ShapeRange]:
        """The calibration profile."""
        return {item.name: ShapeRange.fixed(item.shape) for item in self.inputs}


def open_stream(request: EngineRequest, source: EngineSource, progress: Progress) -> ImageStream:
    """Find the images that the build was calibrated on, unchanged, and how to batch them.

    Raises:
        UsageError: no ``--data``, other preprocessing than the build's, or a batch that does not fit.
        ImageError: images are missing or were changed.
    """
    if request.data is None:
        raise UsageError(
            "--native-calibration",
            expected="--data with the build's manifest",
            got="none",
            remedy="add --data MANIFEST",
        )
    recorded = source.provenance["request"]
    dataset = _load(request, recorded["split"])
    described = describe_inputs(dataset)
    if described["preprocess"] != recorded["preprocess"] or described["inputs"] != recorded["inputs"]:
        raise UsageError(
            str(request.data),
            expected="the preprocessing that the build was made with",
            got="another",
            remedy="restore it, or build again",
        )
    keys = sorted(source.provenance["images"])
    _check_images(dataset, source.provenance["images"])
    bindings = bind_dataset(source.network, dataset, source.place.name)
    reader = FeedReader(dataset, bindings)
    inputs, batch = _inputs(bindings, reader, keys)
    return ImageStream(keys, batch, inputs, reader, progress)


def _load(request: EngineRequest, split: str) -> Dataset:
    data = str(request.data)
    wanted = None if Path(data).stem == split and not data.endswith((".yaml", ".yml")) else split
    return load_dataset(data, wanted, request.root, request.preprocess)


def _check_images(dataset: Dataset, digests: Mapping[str, str]) -> None:
    paths = {record.key: Path(record.path) for record in dataset.records}
    wrong = [
        key
        for key, digest in sorted(digests.items())
        if key not in paths or not paths[key].is_file() or sha256_file(paths[key]) != digest
    ]
    if wrong:
        raise ImageError(
            f"{len(wrong)} calibration images",
            expected="to be as the build read them",
            got=f"missing or changed: {few(wrong)}",
            remedy="restore them, or build again",
        )


def _inputs(
    bindings: Sequence[InputBinding], reader: FeedReader, keys: Sequence[str]
) -> tuple[tuple[InputSpec, ...], int]:
    """Shapes from the first image; every other must have the same, or calibration stops at it."""
    first = reader.load(keys[0])
    shapes = [binding.tensor.shape for binding in bindings]
    lengths = [shape[0] for shape in shapes if shape]
    open_axis = all(length is None for length in lengths)
    fixed = next((length for length in lengths if length is not None), None)
    batch = calibration_batch(len(keys), open_axis, fixed)
    specs = tuple(
        InputSpec(name, (batch * array.shape[0] if open_axis or fixed != array.shape[0] else batch, *array.shape[1:]),
                  array.dtype.name)
        for name, array in first.items()
    )  # fmt: skip
    return specs, batch
