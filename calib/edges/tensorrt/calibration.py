"""What a TensorRT 10 calibrator does, without TensorRT: hand over batches, give and take caches, forget no failure.

TensorRT's Python bindings print an exception of ``get_batch`` and take it for the end of the data: calibration ends
early and the build succeeds (github.com/NVIDIA/TensorRT, python/src/infer/pyInt8.cpp). They also read as many pointers
as the network has inputs, whatever the length of the list. So nothing leaves these callbacks but a sound answer, and
what went wrong is raised once the build returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from calib.edges.tensorrt.buffers import DeviceBuffer, DeviceMemory, ForeignArray, foreign_array
from calib.errors import CalibError


class CalibrationError(CalibError):
    """Calibration inside a TensorRT build went wrong; the engine it gave is not to be used."""


@dataclass(frozen=True)
class InputSpec:
    """What one input takes at calibration.

    Attributes:
        name: of the input.
        shape: of the calibration profile, batch axis included.
        dtype: NumPy name of the element type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str


Batch = Mapping[str, Any]
"""Input name to a NumPy array, or to a device array or address of another library."""


class CalibrationRun:
    """The callbacks of a calibrator that calibrates on batches.

    Args:
        inputs: what each input takes.
        batches: every batch holds every input at exactly the profile's shape.
        images: how many the batches hold together; each is read exactly once.
        memory: where host arrays are uploaded to.
    """

    def __init__(
        self, inputs: Sequence[InputSpec], batches: Iterable[Batch], images: int, memory: DeviceMemory
    ) -> None:
        self._inputs = {item.name: item for item in inputs}
        self._batches: Iterator[Batch] = iter(batches)
        self._images, self._memory = images, memory
        self._buffers: dict[str, DeviceBuffer] = {}
        self._held: list[Any] = []
        self._ended = False
        self.seen = 0
        self.failure: BaseException | None = None
        self.written: bytes | None = None

    @property
    def batch_size(self) -> int:
        """Images a batch."""
        return max((item.shape[0] for item in self._inputs.values() if item.shape), default=1)

    def get_batch(self, names: Sequence[str]) -> list[int] | None:
        """Answer with one device pointer an input, in the order asked for; None once there are no more batches."""
        if self.failure is not None or self._ended:
            return None
        try:
            self._check_names(names)
            batch = next(self._batches, None)
            if batch is None:
                self._ended = True
                return None
            return self._pointers(batch, names)
        except BaseException as error:  # noqa: BLE001 - kept, and raised after the build: TensorRT would swallow it
            self.failure = error
            return None

    def read_calibration_cache(self) -> bytes | None:
        """Nothing: calibrate."""
        return None

    def write_calibration_cache(self, cache: Any) -> None:
        """Keep a copy of what TensorRT found; its memory goes after this call."""
        self.written = bytes(memoryview(cache))

    def finish(self) -> None:
        """Raise what went wrong, now that TensorRT has returned.

        Raises:
            CalibrationError: not every image was read, or nothing was written.
            BaseException: whatever went wrong in :meth:`get_batch`.
        """
        if self.failure is not None:
            raise self.failure
        if self.seen != self._images:
            raise CalibrationError(
                "calibration",
                expected=f"{self._images} images to be read",
                got=f"{self.seen}",
                remedy="the build ended calibration early: see TensorRT's messages above; do not use this engine",
            )
        if self.written is None:
            raise CalibrationError(
                "calibration",
                expected="TensorRT to write a calibration cache",
                got="none",
                remedy="the network holds nothing to calibrate (Q/DQ, or integers only), or the build failed before",
            )

    def _check_names(self, names: Sequence[str]) -> None:
        if set(names) != set(self._inputs):
            raise CalibrationError(
                "calibration",
                expected=f"to be asked for the inputs {', '.join(self._inputs)}",
                got=", ".join(names) or "none",
                remedy="the network that TensorRT parsed has other inputs than the data set feeds",
            )

    def _pointers(self, batch: Batch, names: Sequence[str]) -> list[int]:
        self._held = [batch]  # device arrays must live until TensorRT asks for the next batch
        pointers = [self._pointer(self._inputs[name], batch.get(name)) for name in names]
        self.seen += self.batch_size
        return pointers

    def _pointer(self, wanted: InputSpec, value: Any) -> int:
        place = f"calibration, batch after {self.seen} images, input {wanted.name!r}"
        if isinstance(value, np.ndarray):
            check_array(place, wanted, value.shape, value.dtype.name, value.flags.c_contiguous)
            if wanted.name not in self._buffers:
                self._buffers[wanted.name] = self._memory.allocate(value.nbytes)
            self._memory.upload(value, self._buffers[wanted.name])
            return self._buffers[wanted.name].pointer
        found = foreign_array(value)
        if found is None:
            raise CalibrationError(
                place,
                expected="a NumPy array, a device array or an address",
                got="nothing" if value is None else type(value).__name__,
                remedy="give every input of the network in every batch; move tensors to the GPU first",
            )
        _check_foreign(place, wanted, found)
        return found.pointer


def check_array(place: str, wanted: InputSpec, shape: Sequence[int], dtype: str, contiguous: bool) -> None:
    """Refuse an array that TensorRT would misread.

    Raises:
        CalibrationError: another shape, element type, or not C-contiguous.
    """
    if tuple(shape) != wanted.shape:
        raise CalibrationError(
            place,
            expected=f"shape {list(wanted.shape)}, the calibration profile's",
            got=str(list(shape)),
            remedy="TensorRT reads exactly one profile shape from the pointer, whatever lies there",
        )
    if dtype != wanted.dtype:
        raise CalibrationError(
            place,
            expected=f"elements of type {wanted.dtype}",
            got=dtype,
            remedy="cast them: TensorRT reads the bytes as its own type; float64 read as float32 is garbage",
        )
    if not contiguous:
        raise CalibrationError(
            place,
            expected="a C-contiguous array",
            got="one with gaps or another order",
            remedy="copy it with numpy.ascontiguousarray, or tensor.contiguous()",
        )


def _check_foreign(place: str, wanted: InputSpec, found: ForeignArray) -> None:
    if found.shape is not None and found.dtype is not None:
        check_array(place, wanted, found.shape, found.dtype, found.contiguous)
    if not found.pointer:
        raise CalibrationError(place, expected="a device address", got="0", remedy="allocate the buffer first")


class CacheRun:
    """The callbacks of a calibrator that holds a cache and no data.

    Args:
        cache: the cache's bytes.
        batch_size: what to answer when asked.
    """

    def __init__(self, cache: bytes, batch_size: int = 1) -> None:
        self._cache = cache
        self.batch_size = batch_size
        self.asked_for_data = False
        self.read = False

    def get_batch(self, names: Sequence[str]) -> list[int] | None:
        """Answer that there is no data; TensorRT asks only where it did not take the cache."""
        del names
        self.asked_for_data = True
        return None

    def read_calibration_cache(self) -> bytes:
        """Hand the cache over."""
        self.read = True
        return self._cache

    def write_calibration_cache(self, cache: Any) -> None:
        """Take nothing: the cache on disk is the release artifact."""

    def finish(self) -> None:
        """Raise if TensorRT did not take the cache.

        Raises:
            CalibrationError: it asked for data, or for no cache at all.
        """
        if self.asked_for_data or not self.read:
            header = self._cache.partition(b"\n")[0].decode("utf-8", "replace")
            raise CalibrationError(
                "calibration cache",
                expected="TensorRT to take it",
                got=f"it was ignored; its header is {header!r}" if self.asked_for_data else "it was never asked for",
                remedy="the header must name the installed TensorRT's version and this calibrator: build again with "
                "--trt-version, or `calib cache retarget`",
            )
