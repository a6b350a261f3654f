"""Running a network: what a stage may ask of a runtime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[Any]]
"""Network input name to a C-contiguous array with batch axis."""


@runtime_checkable
class DeviceArray(Protocol):
    """An array that lives on an accelerator; a counting backend for that device may read it in place."""

    @property
    def device(self) -> str:
        """Device name, such as ``cuda:0``."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Length per axis."""

    def to_host(self) -> NDArray[Any]:
        """Copy to host memory."""


@dataclass(frozen=True)
class Blocks:
    """A tensor ``[N, C, H, W]`` in host memory as a runtime computed it, in blocks of channels; a :class:`DeviceArray`.

    Attributes:
        data: contiguous float32 ``[N, ceil(C / width), H, W, width]``. Channel ``i`` is lane ``i % width`` of block
            ``i // width``; lanes behind the last channel are padding and may hold anything.
        channels: C.
    """

    data: NDArray[np.float32]
    channels: int

    @property
    def device(self) -> str:
        """Device name."""
        return "cpu"

    @property
    def shape(self) -> tuple[int, ...]:
        """``(N, C, H, W)``."""
        images, _, height, width, _ = self.data.shape
        return images, self.channels, height, width

    def first(self, images: int) -> Blocks:
        """The first images of a batch; a view."""
        return Blocks(self.data[:images], self.channels)

    def to_host(self) -> NDArray[np.float32]:
        """Copy into the usual layout ``[N, C, H, W]``."""
        images, _, height, width = self.shape
        whole = self.data.transpose(0, 1, 4, 2, 3).reshape(images, -1, height, width)
        return np.ascontiguousarray(whole[:, : self.channels])


Array = NDArray[Any] | DeviceArray


class Runner(Protocol):
    """A network loaded by a runtime. :meth:`run` may be called from several threads at once."""

    @property
    def outputs(self) -> Sequence[str]:
        """Tensors that a run returns, in network order."""

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Run one batch. The arrays may view the runtime's memory: use them before the mapping goes."""


class StreamRunner(Runner, Protocol):
    """A runner that need not hold all outputs of a run at once."""

    def stream(self, feeds: Feeds) -> Iterator[tuple[str, Array]]:
        """Run one batch and give each output away by name; what the caller does not keep can be freed at once."""


def to_host(array: Array) -> NDArray[Any]:
    """The array in host memory, copied only if it lives on a device."""
    return array if isinstance(array, np.ndarray) else array.to_host()
