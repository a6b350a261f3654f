"""The integer grid of a quantizer in a graph: scales, zero points and the integers it may use, whoever wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.graph.stored import StoredValues
from calib.types.rangetable import LEVELS, SCALE_STEPS

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear"})
QONNX = frozenset({"Quant", "IntQuant", "BipolarQuant", "FloatQuant"})
"""Quantizers of QONNX, which quantize and dequantize in one node."""
INTEGERS: Mapping[int, tuple[str, float, float]] = {
    onnx.TensorProto.INT8: ("INT8", -128, 127),
    onnx.TensorProto.UINT8: ("UINT8", 0, 255),
    onnx.TensorProto.INT16: ("INT16", -(2**15), 2**15 - 1),
    onnx.TensorProto.UINT16: ("UINT16", 0, 2**16 - 1),
    onnx.TensorProto.INT32: ("INT32", -(2**31), 2**31 - 1),
    onnx.TensorProto.INT4: ("INT4", -8, 7),
    onnx.TensorProto.UINT4: ("UINT4", 0, 15),
}
NUMPY_TYPES: Mapping[str, int] = {
    "int8": onnx.TensorProto.INT8, "uint8": onnx.TensorProto.UINT8, "int16": onnx.TensorProto.INT16,
    "uint16": onnx.TensorProto.UINT16, "int32": onnx.TensorProto.INT32, "int4": onnx.TensorProto.INT4,
    "uint4": onnx.TensorProto.UINT4,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Grid:
    """What a quantizer says.

    Attributes:
        scale: float64, 0-d, ``[C]``, or more axes for blocks; as stored, faulty or not.
        zero: zero points, float64, shape of ``scale``.
        low: smallest integer.
        high: largest integer.
        kind: integer type, ``INT8``; ``other`` for those that are no integers.
        float_zero: whether the zero point is stored as a float, which no runtime takes.
        elem_type: what the scales are stored in, a key of ``SCALE_STEPS``.
    """

    scale: NDArray[np.float64]
    zero: NDArray[np.float64]
    low: float
    high: float
    kind: str
    float_zero: bool = False
    elem_type: str = "float32"

    @property
    def ends(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Integers of the ends with the zero point taken off, shape of ``scale``."""
        return self.low - self.zero, self.high - self.zero

    @property
    def symmetric(self) -> bool:
        """Whether INT8 with zero point 0 has every one of its values at the same scale."""
        low, high = self.ends
        return bool(low.min(initial=0) >= -128 and high.max(initial=0) == 127)

    @property
    def eight_bits(self) -> bool:
        """Whether it has the 8 bits of INT8, or half of them: 128 or more levels, 256 at most."""
        return self.kind != "other" and 127 <= self.high - self.low <= 255

    @property
    def amaxes(self) -> NDArray[np.float64]:
        """Half-width of the symmetric range that holds every value the integers stand for, shape of ``scale``."""
        low, high = self.ends
        with np.errstate(all="ignore"):  # an infinite scale times 0 is NaN: passed on, not complained of
            return np.asarray(np.maximum(np.abs(low), np.abs(high)) * self.scale)

    @property
    def amax(self) -> float:
        """The largest of :attr:`amaxes`."""
        return float(self.amaxes.max(initial=0.0))

    @property
    def cost(self) -> float:
        """Bits of resolution that the symmetric INT8 range loses: ``log2(amax / 127 / scale)``, at least 0."""
        if self.symmetric:
            return 0.0
        low, high = self.ends
        widest = float(np.maximum(np.abs(low), np.abs(high)).max(initial=0.0))
        return float(max(np.log2(widest / LEVELS), 0.0)) if widest > 0 else 0.0

    def clipped(self, low: float, high: float) -> Grid:
        """Narrow the integers to what a Clip between Q and DQ lets through."""
        return replace(self, low=max(self.low, low), high=min(self.high, high))


class GridReader:
    """Reads the grids of Q, DQ and QONNX nodes.

    Args:
        stored: constants of the model.
    """

    def __init__(self, stored: StoredValues) -> None:
        self.stored = stored

    def of_node(self, node: onnx.NodeProto) -> Grid | None:
        """Read a node's grid; None where its scale or zero point is computed by the network or is no number."""
        grid = self._qonnx(node) if node.op_type in QONNX else self._linear(node)
        return None if grid is None else replace(grid, elem_type=self._float_type(node.input[1]))

    def _float_type(self, name: str) -> str:
        """Tell what a scale is stored in; bfloat16 is read as float32."""
        stored, value = self.stored.initializers.get(name), self.stored.value(name)
        if stored is not None and stored.data_type == onnx.TensorProto.BFLOAT16:
            return "bfloat16"
        kind = "" if value is None else value.dtype.name
        return kind if kind in SCALE_STEPS else "float32"

    def clip_of(self, node: onnx.NodeProto) -> tuple[float, float]:
        """Read the ends of a Clip on integers; infinite where it has none."""
        ends = [-np.inf, np.inf]
        for slot in (1, 2):
            value = self.stored.value(node.input[slot]) if len(node.input) > slot and node.input[slot] else None
            if value is not None and value.size == 1:
                ends[slot - 1] = float(value.reshape(()))
        return ends[0], ends[1]

    def _linear(self, node: onnx.NodeProto) -> Grid | None:
        scale = self._floats(node.input[1]) if len(node.input) > 1 else None
        if scale is None:
            return None
        name = node.input[2] if len(node.input) > 2 else ""
        if not name:
            return _grid(scale, np.zeros(scale.shape), self._type(node))
        zero = self.stored.value(name)
        if zero is None or zero.size not in {1, scale.size} or (zero.size > 1 and zero.shape != scale.shape):
            return None
        zeros = np.full(scale.shape, zero.flat[0]) if zero.size == 1 else zero
        if zero.dtype.kind == "f" and zero.dtype.itemsize > 1:
            return _float_zero(scale, np.asarray(zeros, np.float64))
        kind = NUMPY_TYPES.get(zero.dtype.name)
        return _grid(scale, np.asarray(zeros, np.float64) if kind else np.zeros(scale.shape), kind)

    def _floats(self, name: str) -> NDArray[np.float64] | None:
        value = self.stored.value(name) if name else None
        if value is None or value.dtype.kind != "f" or not value.size:
            return None
        with np.errstate(all="ignore"):  # NaN is passed on, not complained of
            return value.astype(np.float64)

    def _type(self, node: onnx.NodeProto) -> int:
        """Tell the integer type where no zero point does: the stored integers' own, the attribute, else uint8."""
        stored = self.stored.initializers.get(node.input[0])
        if node.op_type.startswith("TRT_INT8"):
            return onnx.TensorProto.INT8
        if stored is not None and node.op_type in DEQUANTIZE:
            return int(stored.data_type)
        asked = [item.i for item in node.attribute if item.name == "output_dtype" and item.i]
        return int(asked[0]) if asked else onnx.TensorProto.UINT8

    def _qonnx(self, node: onnx.NodeProto) -> Grid | None:
        scale = self._floats(node.input[1]) if len(node.input) > 1 else None
        if scale is None:
            return None
        if node.op_type in {"BipolarQuant", "FloatQuant"}:
            return Grid(scale, np.zeros(scale.shape), 0.0, 0.0, "other")
        zero = self._floats(node.input[2]) if len(node.input) > 2 else None
        bits = self._floats(node.input[3]) if len(node.input) > 3 else None
        if zero is None or bits is None or bits.size != 1 or not 1 <= float(bits.reshape(())) <= 32:
            return None
        if attribute(node, "rounding_mode", b"ROUND").upper() not in {b"ROUND", b"HALF_EVEN"}:
            return Grid(scale, np.zeros(scale.shape), 0.0, 0.0, "other")
        options = {item.name: item.i for item in node.attribute}
        signed, narrow = options.get("signed", 1), options.get("narrow", 0)
        levels = 2.0 ** float(bits.reshape(()))
        low, high = (-levels / 2, levels / 2 - 1) if signed else (0.0, levels - 1)
        low, high = (low + narrow, high) if signed else (low, high - narrow)
        offsets = np.broadcast_to(zero, scale.shape) if zero.size == 1 else zero
        return Grid(scale, np.asarray(offsets), low, high, "QONNX") if offsets.shape == scale.shape else None


def _grid(scale: NDArray[np.float64], zero: NDArray[np.float64], kind: int | None) -> Grid:
    name, low, high = INTEGERS.get(kind or 0, ("other", 0.0, 0.0))
    return Grid(scale, zero, float(low), float(high), name)


def _float_zero(scale: NDArray[np.float64], zero: NDArray[np.float64]) -> Grid | None:
    """Take a zero point that is stored as a float for that of INT8: some exporters write 0.0."""
    whole = np.isfinite(zero).all() and (zero == np.rint(zero)).all() and (np.abs(zero) <= 128).all()
    return Grid(scale, zero, -128.0, 127.0, "INT8", float_zero=True) if whole else None


def long_axis(shape: Iterable[int]) -> int | None:
    """Find the one axis of a scale that is longer than 1; None where there is none or several."""
    long = [place for place, length in enumerate(shape) if length > 1]
    return long[0] if len(long) == 1 else None


def attribute(node: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Read an attribute of a node, or the default."""
    found = next((item for item in node.attribute if item.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)
