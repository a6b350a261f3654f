"""Which image, array or constant feeds which input of a network, checked against what the network declares."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import GraphTensor, Network
from calib.core.preprocess import preprocess
from calib.errors import ManifestError, ModelError, UsageError
from calib.types.data import Preprocess

FLOATS = ("float16", "float32", "float64")
FEEDABLE = frozenset({*FLOATS, "bool", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))})
"""Element types of network inputs that NumPy has."""
FRAME = (1080, 1920)
"""Height and width of a video frame."""
Casting = Literal["no", "safe"]


@dataclass(frozen=True)
class InputBinding:
    """What feeds one network input.

    Attributes:
        tensor: the network input.
        source: preprocessing of a picture, a constant, or None where each image brings an array.
        from_files: whether images bring files of their own for it.
    """

    tensor: GraphTensor
    source: Preprocess | float | None
    from_files: bool = False

    @property
    def elem_type(self) -> str:
        """Element type the input takes; float32 where the network does not say."""
        return self.tensor.elem_type or "float32"

    @property
    def stacked(self) -> bool:
        """Whether images lie side by side along the first axis, rather than one image being the whole input.

        Four axes (or an unknown number) have a batch axis, three are one picture ``[C, H, W]`` or ``[H, W, C]``; only
        planes of gray, ``[N, H, W]``, may be stacked with three.
        """
        shape = self.tensor.shape
        if shape is None or not isinstance(self.source, Preprocess):
            return shape is None or len(shape) > 0
        if len(shape) == 3:
            return self.source.colour == "gray" and (shape[0] or 1) > 1 and shape[2] != 1
        return len(shape) > 3

    @property
    def is_constant(self) -> bool:
        """Whether it is the same for every image."""
        return isinstance(self.source, int | float) and not self.from_files

    def usual_shape(self) -> tuple[int, ...] | None:
        """Shape of one image's input; where neither network nor preprocessing fixes a picture's size, a video frame's.

        None where even the rank is unknown.
        """
        shape = self.tensor.shape
        if shape is None or not isinstance(self.source, Preprocess) or len(shape) < 3:
            return None if shape is None else tuple(length or 1 for length in shape)
        size = self.source.size or FRAME
        last = (*size, 3) if self.source.layout == "nhwc" else (3, *size)
        picture = (1,) * (len(shape) - 3) + last
        return tuple(length or usual for length, usual in zip(shape, picture, strict=True))

    def from_picture(self, pixels: NDArray[np.uint8], place: str) -> NDArray[Any]:
        """Make the input from a picture, uint8 ``[H, W, 3]`` RGB.

        Raises:
            ManifestError: no preprocessing is stated for it.
            ModelError: the result does not have the shape or type the network declares.
        """
        if not isinstance(self.source, Preprocess):
            raise ManifestError(
                f"network input {self.tensor.name!r}, {place}",
                expected="preprocessing of its pictures under the manifest's `inputs`",
                got="none",
                remedy=f"write `inputs: {{{self.tensor.name!r}: {{colour: …, size: …}}}}`, or store arrays as .npy",
            )
        return self._checked(self._arranged(preprocess(pixels, self.source)), place, "no")

    def from_array(self, array: NDArray[Any], place: str) -> NDArray[Any]:
        """Make the input from an array, with or without batch axis.

        Raises:
            ModelError: shape or dtype are not what the network declares.
        """
        return self._checked(array, place, "safe")

    def _arranged(self, picture: NDArray[Any]) -> NDArray[Any]:
        """Drop the channel axis of a gray picture where the network has none."""
        wanted = self.tensor.shape
        if wanted is None or 1 not in (picture.shape[0], picture.shape[2]):
            return picture
        plane = picture.reshape(picture.shape[:2] if picture.shape[2] == 1 else picture.shape[1:])
        if len(wanted) == 2:
            return plane
        return plane[None] if len(wanted) == 3 and not _fits(wanted, picture.shape) else picture

    def constant(self, rows: int = 1) -> NDArray[Any]:
        """Fill the declared shape with the constant; a dynamic first axis gets length ``rows``, others 1."""
        shape = [length or (1 if axis else rows) for axis, length in enumerate(self.tensor.shape or ())]
        return np.full(shape, self.source, self.elem_type)

    def _checked(self, array: NDArray[Any], place: str, casting: Casting) -> NDArray[Any]:
        """Add the batch axis where it is missing and check shape and dtype."""
        wanted = self.tensor.shape
        if array.ndim + 1 == (4 if wanted is None else len(wanted)):
            array = array[None]
        array = self._cast(array, place, casting)
        if wanted is not None and not _fits(wanted, array.shape, batch=self.stacked):
            raise self._misfit(array, place)
        return np.ascontiguousarray(array)

    def _cast(self, array: NDArray[Any], place: str, casting: Casting) -> NDArray[Any]:
        wanted = self.elem_type
        both_floats = wanted in FLOATS and array.dtype.name in FLOATS
        if both_floats or np.can_cast(array.dtype, wanted, casting):
            return array.astype(wanted, copy=False)
        raise ModelError(
            f"network input {self.tensor.name!r}, {place}",
            expected=f"elements of type {wanted}",
            got=str(array.dtype),
            remedy=f"state `dtype: {wanted}` in the preprocessing, or save the array in that type",
        )

    def _misfit(self, array: NDArray[Any], place: str) -> ModelError:
        shape = "x".join("?" if length is None else str(length) for length in self.tensor.shape or ())
        return ModelError(
            f"network input {self.tensor.name!r}, {place}",
            expected=f"shape {shape}",
            got="x".join(map(str, array.shape)),
            remedy="set `size` (height x width), `layout` and `colour` of the preprocessing to what the network takes",
        )


def _fits(wanted: tuple[int | None, ...], shape: tuple[int, ...], *, batch: bool = False) -> bool:
    """Whether a shape fits a declared one; the length of a batch axis is another's business."""
    start = 1 if batch else 0
    return len(wanted) == len(shape) and all(
        need in (None, length) for need, length in zip(wanted[start:], shape[start:], strict=True)
    )


def bind_inputs(
    network: Network,
    main: Preprocess | None,
    further: Mapping[str, Preprocess | float],
    place: str,
    files: Collection[str] = (),
) -> tuple[InputBinding, ...]:
    """Decide what feeds each network input.

    Inputs named under the manifest's ``inputs`` get what is stated there, inputs that images bring files for get these,
    and the one that is left gets the picture under the manifest's ``preprocess``.

    Args:
        network: the network.
        main: the manifest's preprocessing, or None.
        further: the manifest's ``inputs``.
        place: what to call the network in messages.
        files: names of the inputs that images bring files for.

    Raises:
        ManifestError: more than one input is left, a named input does not exist, or a constant is no value of the
            input's element type.
        UsageError: preprocessing is missing.
        ModelError: the network has no input, or one of a type that no picture, array or number can feed.
    """
    tensors = {tensor.name: tensor for tensor in network.inputs}
    if not tensors:
        raise ModelError(
            place, expected="a network with an input", got="none", remedy="export the network with its image input"
        )
    unknown = sorted({*further, *files} - set(tensors))
    left = [name for name in tensors if name not in further and name not in files]
    if unknown or len(left) > 1:
        raise _unclear(place, list(tensors), unknown, left)
    if left and main is None:
        raise UsageError(
            place, expected="preprocessing", got="none", remedy="state it in the manifest or with --preprocess"
        )
    return tuple(_bound(tensor, further.get(name, main), name in files, place) for name, tensor in tensors.items())


def _bound(tensor: GraphTensor, source: Preprocess | float | None, from_files: bool, place: str) -> InputBinding:
    binding = InputBinding(tensor, source, from_files)
    if binding.elem_type not in FEEDABLE:
        raise ModelError(
            f"network input {tensor.name!r} of {place}",
            expected="a tensor of floats, integers or bools",
            got=f"elements of type {binding.elem_type}" if tensor.shape is not None else binding.elem_type,
            remedy="export the network with a float32 or uint8 input",
        )
    if isinstance(source, int | float) and not _is_value(source, np.dtype(binding.elem_type)):
        raise ManifestError(
            f"inputs of {place}, {tensor.name!r}",
            expected=f"a constant of type {binding.elem_type}, the type of this network input",
            got=f"{source:g}",
            remedy="state a value of that type under the manifest's `inputs`",
        )
    return binding


def _is_value(number: float, dtype: np.dtype[Any]) -> bool:
    """Whether a number is a value of an element type."""
    if dtype.kind == "f":
        return abs(number) <= float(np.finfo(dtype).max)
    low, high = (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
    return number == int(number) and low <= number <= high


def _unclear(place: str, names: list[str], unknown: list[str], left: list[str]) -> ManifestError:
    if unknown:
        got, remedy = f"unknown inputs {', '.join(unknown)}", "take them out of the manifest's `inputs`, or rename them"
    else:
        got = f"nothing stated for {', '.join(left[1:])}"
        remedy = f"write `inputs: {{{left[-1]!r}: 0.5}}` for a constant, or a preprocessing mapping"
    return ManifestError(
        f"inputs of {place}",
        expected="the manifest's `inputs` to name every network input but one (" + ", ".join(names) + ")",
        got=got,
        remedy=remedy,
    )
