"""Which image, array or constant feeds which input of a network, checked against what the network declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import GraphTensor, Network
from calib.core.preprocess import preprocess
from calib.errors import ManifestError, ModelError, UsageError
from calib.types.data import Preprocess

FLOATS = ("float16", "float32", "float64")


@dataclass(frozen=True)
class InputBinding:
    """What feeds one network input.

    Attributes:
        tensor: the network input.
        source: preprocessing of a picture, or a constant.
    """

    tensor: GraphTensor
    source: Preprocess | float

    def from_picture(self, pixels: NDArray[np.uint8], place: str) -> NDArray[Any]:
        """Make the input from a picture, uint8 ``[H, W, 3]`` RGB.

        Raises:
            ModelError: the result does not have the shape or type the network declares.
        """
        if not isinstance(self.source, Preprocess):
            raise AssertionError(self.tensor.name)
        return self.checked(preprocess(pixels, self.source), place)

    def constant(self) -> NDArray[Any]:
        """Fill the declared shape with the constant; dynamic axes get length 1."""
        shape = [length or 1 for length in self.tensor.shape or ()]
        return np.full(shape, self.source, self.tensor.elem_type or "float32")

    def checked(self, array: NDArray[Any], place: str) -> NDArray[Any]:
        """Add the batch axis and check shape and dtype.

        Args:
            array: without batch axis (a picture), or whole.
            place: the image, for messages.

        Raises:
            ModelError: shape or dtype are not what the network declares.
        """
        wanted = self.tensor.shape
        if wanted is not None and len(wanted) == array.ndim + 1:
            array = array[None]
        array = self._cast(array, place)
        if wanted is not None and not _fits(wanted, array.shape):
            raise self._misfit(array, place)
        return np.ascontiguousarray(array)

    def _cast(self, array: NDArray[Any], place: str) -> NDArray[Any]:
        wanted = self.tensor.elem_type or "float32"
        if array.dtype == wanted:
            return array
        if wanted in FLOATS and array.dtype.name in FLOATS:
            return array.astype(wanted)
        raise ModelError(
            f"network input {self.tensor.name!r}, {place}",
            expected=f"elements of type {wanted}",
            got=str(array.dtype),
            remedy=f"state `dtype: {wanted}` in the preprocessing",
        )

    def _misfit(self, array: NDArray[Any], place: str) -> ModelError:
        shape = "x".join("?" if length is None else str(length) for length in self.tensor.shape or ())
        return ModelError(
            f"network input {self.tensor.name!r}, {place}",
            expected=f"shape {shape}",
            got="x".join(map(str, array.shape)),
            remedy="set `size` (height x width), `layout` and `colour` of the preprocessing to what the network takes",
        )


def _fits(wanted: tuple[int | None, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape fits a declared one; the batch axis of a stack of images is another's business."""
    stacked = len(wanted) > 3 or len(wanted) == 2
    start = 1 if stacked else 0
    return len(wanted) == len(shape) and all(
        need in (None, length) for need, length in zip(wanted[start:], shape[start:], strict=True)
    )


def bind_inputs(
    network: Network, main: Preprocess | None, further: Mapping[str, Preprocess | float], place: str
) -> tuple[InputBinding, ...]:
    """Decide what feeds each network input.

    Inputs named under the manifest's ``inputs`` get what is stated there; the one that is left gets the picture under
    the manifest's ``preprocess``.

    Raises:
        ManifestError: more than one input is left, a named input does not exist, or preprocessing is missing.
        ModelError: the network has no input.
    """
    tensors = {tensor.name: tensor for tensor in network.inputs}
    if not tensors:
        raise ModelError(
            place, expected="a network with an input", got="none", remedy="export the network with its image input"
        )
    unknown = sorted(set(further) - set(tensors))
    left = [name for name in tensors if name not in further]
    if unknown or len(left) > 1:
        raise _unclear(place, list(tensors), unknown, left)
    sources: dict[str, Preprocess | float] = dict(further)
    if left:
        if main is None:
            raise UsageError(
                place, expected="preprocessing", got="none", remedy="state it in the manifest or with --preprocess"
            )
        sources[left[0]] = main
    return tuple(InputBinding(tensor, sources[name]) for name, tensor in tensors.items())


def _unclear(place: str, names: list[str], unknown: list[str], left: list[str]) -> ManifestError:
    got = f"unknown inputs {', '.join(unknown)}" if unknown else f"nothing stated for {', '.join(left[1:])}"
    example = f"`inputs: {{{left[-1] if left else names[0]!r}: 0.5}}` for a constant, or a preprocessing mapping"
    return ManifestError(
        f"inputs of {place}",
        expected="the manifest's `inputs` to name every network input but one (" + ", ".join(names) + ")",
        got=got,
        remedy=f"write {example}",
    )


def batch_length(network: Network, asked: int) -> tuple[int, bool]:
    """Batch length to run with, and whether the network demands it.

    Args:
        network: the network.
        asked: what the user asked for.

    Raises:
        UsageError: the network's batch axis is fixed at another length than asked for.
    """
    fixed = {tensor.shape[0] for tensor in network.inputs if tensor.shape and len(tensor.shape) > 1}
    lengths = {length for length in fixed if length}
    if not lengths:
        return asked, False
    length = max(lengths)
    if asked not in (1, length):
        raise UsageError(
            f"--batch-size {asked}",
            expected=f"{length}, the network's fixed batch",
            got=str(asked),
            remedy="leave the flag out, or export the network with a dynamic batch axis",
        )
    return length, length > 1
