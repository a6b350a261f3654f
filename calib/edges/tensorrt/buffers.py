"""Device memory: our own through cuda-core, and anybody else's as raw pointers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calib.errors import CalibError, MissingLibraryError


class DeviceBuffer(Protocol):
    """Memory on a device; it is given back when the object goes."""

    @property
    def pointer(self) -> int:
        """Address of the first byte."""

    @property
    def size(self) -> int:
        """Size in bytes."""


class DeviceMemory(Protocol):
    """Allocates device memory and copies to and from it."""

    @property
    def stream(self) -> int:
        """Handle of the stream that copies are ordered on."""

    def allocate(self, size: int) -> DeviceBuffer:
        """Allocate bytes."""

    def upload(self, array: NDArray[Any], buffer: DeviceBuffer) -> None:
        """Copy a C-contiguous host array to the start of a buffer; done when this returns."""

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Copy the start of a buffer to a C-contiguous host array; done when this returns."""

    def synchronize(self) -> None:
        """Wait for everything on the stream."""


@dataclass(frozen=True)
class ForeignArray:
    """A device array that someone else owns.

    Attributes:
        pointer: address of its first element.
        shape: lengths, or None where only an address is known.
        dtype: NumPy name of the element type, or None likewise.
        contiguous: whether it is C-contiguous; assumed of bare addresses.
        owner: kept alive as long as this object.
    """

    pointer: int
    shape: tuple[int, ...] | None
    dtype: str | None
    contiguous: bool
    owner: Any


@dataclass(frozen=True)
class _CudaBuffer:
    pointer: int
    size: int
    handle: Any


class CudaMemory:
    """Device memory through cuda-core, on a stream of its own.

    Args:
        device: number of the GPU.

    Raises:
        MissingLibraryError: cuda-core is not installed.
        DeviceError: there is no such GPU, or its driver does not work.
    """

    def __init__(self, device: int = 0) -> None:
        try:
            from cuda.core import Buffer, Device
        except ImportError as error:
            raise MissingLibraryError(
                "device buffers",
                expected="the package cuda-core",
                got=str(error),
                remedy="pip install 'calib-workbench[gpu]'",
            ) from error
        try:
            self._device = Device(device)
            self._device.set_current()
            self._stream = self._device.create_stream()
        except Exception as error:  # the driver's errors share no narrower base
            raise DeviceError(
                f"GPU {device}",
                expected="an NVIDIA GPU with a working driver",
                got=f"{type(error).__name__}: {error}"[:200],
                remedy="`calib doctor` and `nvidia-smi` show what is there",
            ) from error
        self._wrap = Buffer.from_handle

    @property
    def stream(self) -> int:
        """Handle of the stream that copies are ordered on."""
        return int(self._stream.handle)

    def allocate(self, size: int) -> DeviceBuffer:
        """Allocate bytes.

        Raises:
            DeviceError: the GPU's memory is full.
        """
        try:
            made = self._device.allocate(max(size, 1), stream=self._stream)
        except Exception as error:  # as above
            raise DeviceError(
                "GPU memory",
                expected=f"{size} bytes of it",
                got=f"{type(error).__name__}: {error}"[:200],
                remedy="free memory on the GPU, or use smaller shapes",
            ) from error
        return _CudaBuffer(int(made.handle), size, made)

    def upload(self, array: NDArray[Any], buffer: DeviceBuffer) -> None:
        """Copy a C-contiguous host array to the start of a buffer."""
        self._copy(buffer.pointer, array.ctypes.data, array.nbytes)

    def download(self, buffer: DeviceBuffer, array: NDArray[Any]) -> None:
        """Copy the start of a buffer to a C-contiguous host array."""
        self._copy(array.ctypes.data, buffer.pointer, array.nbytes)

    def synchronize(self) -> None:
        """Wait for everything on the stream."""
        self._stream.sync()

    def _copy(self, target: int, source: int, size: int) -> None:
        if size:
            self._wrap(target, size).copy_from(self._wrap(source, size), stream=self._stream)
        self._stream.sync()


class DeviceError(CalibError):
    """A GPU is missing, broken or full."""


def foreign_array(value: Any) -> ForeignArray | None:
    """See a device array of another library as an address; None for anything that is none.

    Understood are PyTorch tensors on a GPU, everything with ``__cuda_array_interface__`` (CuPy, Numba, PyCUDA's
    GPUArray), PyCUDA's allocations and cuda-core's buffers, and bare addresses as int.
    """
    if isinstance(value, bool | np.ndarray | str | bytes) or value is None:
        return None
    if isinstance(value, int):
        return ForeignArray(value, None, None, contiguous=True, owner=None)
    if hasattr(value, "data_ptr"):
        return _of_torch(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _of_interface(value)
    handle = getattr(value, "handle", value)
    return ForeignArray(int(handle), None, None, contiguous=True, owner=value) if hasattr(handle, "__int__") else None


def _of_torch(tensor: Any) -> ForeignArray | None:
    if not tensor.is_cuda:
        return None
    dtype = str(tensor.dtype).rpartition(".")[2]
    shape = tuple(int(length) for length in tensor.shape)
    return ForeignArray(int(tensor.data_ptr()), shape, dtype, bool(tensor.is_contiguous()), tensor)


def _of_interface(value: Any) -> ForeignArray:
    described = value.__cuda_array_interface__
    shape = tuple(int(length) for length in described["shape"])
    dtype = np.dtype(described["typestr"])
    strides = described.get("strides")
    contiguous = strides is None or tuple(strides) == c_strides(shape, dtype.itemsize)
    return ForeignArray(int(described["data"][0]), shape, dtype.name, contiguous, value)


def c_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides in bytes of a C-contiguous array."""
    strides = []
    step = itemsize
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return tuple(reversed(strides))
