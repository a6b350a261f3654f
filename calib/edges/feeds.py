"""Images from disk to network inputs: the one path that calibration, evaluation and diagnosis share."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import Network
from calib.edges.files import read_bytes
from calib.edges.images import read_picture
from calib.edges.manifest import require_preprocess
from calib.errors import ImageError, ManifestError
from calib.stages.inputs import InputBinding, bind_inputs
from calib.types.data import Dataset, ImageRecord
from calib.types.runner import Feeds


def bind_dataset(network: Network, dataset: Dataset, place: str) -> tuple[InputBinding, ...]:
    """Decide what feeds each input of a network, images' own files for further inputs included.

    Raises:
        ManifestError: an input is left without source.
        UsageError: preprocessing is needed and not stated.
    """
    files = {name for record in dataset.records for name in record.inputs}
    if any(tensor.name not in dataset.inputs and tensor.name not in files for tensor in network.inputs):
        require_preprocess(dataset)
    return bind_inputs(network, dataset.preprocess, dataset.inputs, place, files)


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
            ManifestError: the image brings no file for an input that nothing else feeds.
            ModelError: the result does not fit the network.
        """
        return self.feeds(key, None)

    def feeds(self, key: str, picture: NDArray[np.uint8] | None) -> Feeds:
        """Network inputs of an image that is decoded already, uint8 ``[H, W, 3]`` RGB; raises as :meth:`load`.

        With None the image is read if an input needs it.
        """
        record = self._records[key]
        return {binding.tensor.name: self._input(binding, record, picture) for binding in self._bindings}

    def _input(self, binding: InputBinding, record: ImageRecord, picture: NDArray[np.uint8] | None) -> NDArray[Any]:
        address = record.inputs.get(binding.tensor.name)
        if address is not None and address.lower().endswith(".npy"):
            return binding.from_array(_read_array(address), f"{record.key}, {address}")
        if address is None and isinstance(binding.source, int | float):
            return binding.constant()
        if address is None and binding.source is None:
            raise ManifestError(
                f"network input {binding.tensor.name!r}, {record.key}",
                expected="a file for it",
                got="none",
                remedy="name one in the list or in the split's `inputs`, or a constant in the manifest's `inputs`",
            )
        if address is not None or picture is None:
            picture = read_picture(address or record.path).pixels
        return binding.from_picture(picture, record.key)


def _read_array(address: str) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(io.BytesIO(read_bytes(address)), allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ImageError(
            address, expected="a NumPy array file", got=str(error), remedy="save the array again with numpy.save"
        ) from error
    return array
