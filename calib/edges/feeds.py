"""Images from disk to network inputs: the one path that calibration, evaluation and diagnosis share."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.edges.files import read_bytes
from calib.edges.images import read_picture
from calib.errors import ImageError
from calib.stages.inputs import InputBinding
from calib.types.data import Dataset, ImageRecord, Preprocess
from calib.types.runner import Feeds


class FeedReader:
    """Reads the inputs of a network for an image; safe to call from several threads.

    Args:
        dataset: the images.
        bindings: what feeds each input.
    """

    def __init__(self, dataset: Dataset, bindings: Sequence[InputBinding]) -> None:
        self._records = {record.key: record for record in dataset.records}
        self._bindings = bindings

    def load(self, key: str) -> Feeds:
        """Network inputs of an image, with batch axis.

        Raises:
            ImageError: a file cannot be read.
            ModelError: the result does not fit the network.
        """
        return self.feeds(key, read_picture(self._records[key].path).pixels)

    def feeds(self, key: str, picture: NDArray[np.uint8]) -> Feeds:
        """Network inputs of an image that is decoded already, uint8 ``[H, W, 3]`` RGB; raises as :meth:`load`."""
        record = self._records[key]
        return {binding.tensor.name: self._input(binding, record, picture) for binding in self._bindings}

    def _input(self, binding: InputBinding, record: ImageRecord, picture: NDArray[np.uint8]) -> NDArray[Any]:
        address = record.inputs.get(binding.tensor.name)
        if address is not None and address.endswith(".npy"):
            return binding.checked(_read_array(address), record.key)
        if not isinstance(binding.source, Preprocess):
            return binding.constant()
        pixels = picture if address is None else read_picture(address).pixels
        return binding.from_picture(pixels, record.key)


def _read_array(address: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(io.BytesIO(read_bytes(address)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ImageError(
            address, expected="a NumPy array file", got=str(error), remedy="save the array again with numpy.save"
        ) from error
    return array
