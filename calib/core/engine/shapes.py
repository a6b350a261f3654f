"""Shape profiles of an engine's inputs: smallest, usual and largest, and what calibration runs on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from calib.core.graph import GraphTensor
from calib.errors import UsageError
from calib.types.data import Preprocess

FORM = "NAME:1x3x352x480 for one shape, or NAME:MIN/OPT/MAX with three of them"


@dataclass(frozen=True)
class ShapeRange:
    """Shapes of one input that an engine is built for; ``opt`` is the one it is tuned for."""

    low: tuple[int, ...]
    opt: tuple[int, ...]
    high: tuple[int, ...]

    @classmethod
    def fixed(cls, shape: Iterable[int]) -> ShapeRange:
        """One shape only."""
        only = tuple(shape)
        return cls(only, only, only)


def parse_shapes(texts: Sequence[str]) -> dict[str, ShapeRange]:
    """Read ``--shapes`` options.

    Raises:
        UsageError: one is malformed, or an input occurs twice.
    """
    found: dict[str, ShapeRange] = {}
    for text in texts:
        name, colon, rest = text.rpartition(":")
        parts = [_parse_shape(part) for part in rest.split("/")]
        shapes = [shape for shape in parts if shape]
        if not colon or not name or len(parts) not in (1, 3) or len(shapes) != len(parts):
            raise _wrong(text, FORM, repr(text))
        if name in found:
            raise _wrong(text, "each input once", f"{name} twice")
        low, opt, high = shapes if len(shapes) == 3 else shapes * 3
        found[name] = _ordered(text, ShapeRange(low, opt, high))
    return found


def _parse_shape(text: str) -> tuple[int, ...]:
    lengths = text.lower().split("x")
    if not all(length.isdecimal() and int(length) for length in lengths):
        return ()
    return tuple(map(int, lengths))


def _ordered(text: str, shapes: ShapeRange) -> ShapeRange:
    triples = list(zip(shapes.low, shapes.opt, shapes.high, strict=False))
    same_rank = len(shapes.low) == len(shapes.opt) == len(shapes.high)
    if not same_rank or any(not low <= opt <= high for low, opt, high in triples):
        raise _wrong(text, "MIN ≤ OPT ≤ MAX along every axis", repr(text))
    return shapes


def complete_shapes(
    inputs: Sequence[GraphTensor], asked: Mapping[str, ShapeRange], preprocess: Preprocess | None
) -> dict[str, ShapeRange]:
    """Give every input whose shape is not fixed its range.

    Args:
        inputs: the network's inputs.
        asked: ranges by name, from the user.
        preprocess: of the main input; its size fills in what the user leaves open, at batch 1.

    Raises:
        UsageError: an unknown input, a shape that does not fit, or one that cannot be told.
    """
    known = {tensor.name: tensor for tensor in inputs}
    unknown = sorted(set(asked) - set(known))
    if unknown:
        raise _wrong(unknown[0], f"one of the inputs {', '.join(known)}", repr(unknown[0]))
    for name, shapes in asked.items():
        _check_fit(known[name], shapes)
    open_inputs = [tensor for tensor in inputs if tensor.shape is None or None in tensor.shape]
    return {tensor.name: asked.get(tensor.name) or _usual(tensor, preprocess) for tensor in open_inputs}


def _check_fit(tensor: GraphTensor, shapes: ShapeRange) -> None:
    wanted = tensor.shape
    if wanted is None:
        return
    for shape in (shapes.low, shapes.opt, shapes.high):
        if len(shape) != len(wanted) or any(need not in (None, got) for need, got in zip(wanted, shape, strict=True)):
            declared = "x".join("?" if length is None else str(length) for length in wanted)
            raise _wrong(tensor.name, f"a shape that fits {declared}", text_of(shape))


def _usual(tensor: GraphTensor, spec: Preprocess | None) -> ShapeRange:
    shape = tensor.shape
    size = None if spec is None else spec.size
    image = shape is not None and len(shape) == 4
    usual: list[int | None] = [1, None, None, None] if image else [1, *[None] * (len(shape or ()) - 1)]
    if image and spec is not None and size is not None:
        channels = 1 if spec.colour == "gray" else 3
        usual = [1, *size, channels] if spec.layout == "nhwc" else [1, channels, *size]
    filled = [fixed if fixed is not None else usual[axis] for axis, fixed in enumerate(shape or ())]
    if shape is None or None in filled:
        raise UsageError(
            f"--shapes {tensor.name}:…",
            expected="a shape for every input that leaves lengths open",
            got="none, and the build's preprocessing names no size",
            remedy=f"give --shapes {FORM}",
        )
    return ShapeRange.fixed(length for length in filled if length is not None)


def open_shapes(inputs: Sequence[GraphTensor]) -> tuple[str, ...]:
    """Spell the inputs that leave lengths open, ``NAME:1x3xHxW``: batch 1, letters for what only the user knows."""
    found = []
    for tensor in inputs:
        lengths = list(tensor.shape or ())
        unknown = [axis for axis, length in enumerate(lengths) if length is None and axis]
        letters = ("H", "W") if len(unknown) == 2 else tuple(f"L{axis}" for axis in unknown)
        named = {0: "1", **dict(zip(unknown, letters, strict=True))}
        if None in lengths:
            sides = (named[axis] if length is None else str(length) for axis, length in enumerate(lengths))
            found.append(f"{tensor.name}:{'x'.join(sides)}")
    return tuple(found)


def calibration_batch(images: int, open_axis: bool, fixed: int | None, largest: int = 8) -> int:
    """Batch length to calibrate with, so that every image is read exactly once.

    TensorRT reads whole batches of the calibration profile's shape: a batch filled up with repeats would count these
    twice.

    Args:
        images: how many there are.
        open_axis: whether the network leaves its batch open.
        fixed: the network's batch length, where it does not.
        largest: longest batch to choose.

    Raises:
        UsageError: a fixed batch that does not divide the number of images.
    """
    if open_axis:
        return max(size for size in range(1, largest + 1) if images % size == 0)
    length = fixed or 1
    if images % length:
        raise UsageError(
            "--native-calibration",
            expected=f"a number of images that the network's fixed batch of {length} divides",
            got=f"{images} images",
            remedy=f"build with --num-images {images - images % length}, or export the network with an open batch axis",
        )
    return length


def text_of(shape: Sequence[int]) -> str:
    """Spell a shape as TensorRT's tools do."""
    return "x".join(map(str, shape))


def _wrong(place: str, expected: str, got: str) -> UsageError:
    return UsageError(f"--shapes {place}", expected=expected, got=got, remedy=f"write {FORM}")
