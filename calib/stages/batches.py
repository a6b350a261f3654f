"""How images share a run of the network: batch length, joining, and which rows of a result are whose."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import ModelError, UsageError
from calib.stages.inputs import InputBinding
from calib.types.data import Preprocess
from calib.types.runner import Feeds


def batch_length(bindings: Sequence[InputBinding], asked: int) -> tuple[int, bool]:
    """Batch length to run with, and whether the network demands it.

    Args:
        bindings: what feeds each input of the network.
        asked: what the user asked for.

    Raises:
        UsageError: the network takes one image a run, or its batch axis is fixed at another length than asked for.
    """
    pictures = [item for item in bindings if isinstance(item.source, Preprocess)]
    axes = [item.tensor.shape[0] if item.tensor.shape else None for item in pictures if item.stacked]
    lengths = {length for length in axes if length}
    if len(axes) < len(pictures):  # a picture without batch axis
        lengths.add(1)
    if not lengths:
        return asked, False
    length = max(lengths)
    if asked not in (1, length) or len(lengths) > 1:
        raise UsageError(
            f"--batch-size {asked}",
            expected=f"{' and '.join(map(str, sorted(lengths)))}, the network's fixed batch",
            got=str(asked),
            remedy="leave the flag out, or export the network with a dynamic batch axis",
        )
    return length, length > 1


def join_images(bindings: Sequence[InputBinding], feeds: Sequence[Feeds], images: Sequence[str]) -> Feeds:
    """Join the network inputs of several images along the batch axis; constants are there once.

    Args:
        bindings: what feeds each input of the network.
        feeds: inputs of each image, of equal shapes.
        images: their keys, for messages.

    Raises:
        ModelError: images of different size in a batch that the network fixes, or an input without batch axis.
    """
    return {item.tensor.name: _joined(item, [feed[item.tensor.name] for feed in feeds], images) for item in bindings}


def _joined(binding: InputBinding, arrays: Sequence[NDArray[Any]], images: Sequence[str]) -> NDArray[Any]:
    if binding.is_constant:
        return binding.constant(len(arrays))
    if len({array.shape[1:] for array in arrays}) > 1:
        raise _batch_error(binding, arrays, images, "images of one size in a batch", "state a `size`")
    whole = arrays[0] if len(arrays) == 1 else np.concatenate([np.atleast_1d(array) for array in arrays])
    length = binding.tensor.shape[0] if binding.tensor.shape else None
    if length is not None and whole.shape[:1] != (length,):
        raise _batch_error(binding, [whole], images, f"{length} along the first axis", "use --batch-size 1")
    return whole


def _batch_error(
    binding: InputBinding, arrays: Sequence[NDArray[Any]], images: Sequence[str], expected: str, remedy: str
) -> ModelError:
    return ModelError(
        f"network input {binding.tensor.name!r}, {', '.join(dict.fromkeys(images))}",
        expected=expected,
        got=", ".join(dict.fromkeys("x".join(map(str, array.shape)) for array in arrays)),
        remedy=remedy,
    )


def rows_of(array: NDArray[Any], images: int, rows: int, channel_axis: int | None) -> NDArray[Any]:
    """Leave out what belongs to the repeats that filled up a batch.

    A tensor whose first axis is not the batch is left whole: values counted twice move no extremum, values left out
    could.

    Args:
        array: a result of the run.
        images: images in the batch.
        rows: batch length that the network demands.
        channel_axis: axis that holds the tensor's channels, or None.
    """
    if images == rows or not array.ndim or array.shape[0] != rows or channel_axis == 0:
        return array
    return array[:images]
