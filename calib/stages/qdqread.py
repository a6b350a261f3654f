"""Read the ranges out of a model with Q/DQ pairs, whoever placed them.

Works on the protobuf alone, without shape inference, so that any model that parses can be read: those of
pytorch-quantization and ModelOpt (scales behind Constant, Cast and Reshape), of ONNX Runtime, of Brevitas
(Q, Clip, DQ) and of torchao PT2E (unsigned or with zero points, which TensorRT rejects).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.formats.registry import QDQ
from calib.core.graph.stored import StoredValues
from calib.core.graph.structure import unreadable_name
from calib.core.quantization import weight_amax
from calib.errors import FormatError, StatisticsError
from calib.types.rangetable import LEVELS, SCALE_STEPS, RangeTable, Remark, TensorRange, WeightRange

QUANTIZE = frozenset({"QuantizeLinear", "TRT_INT8QuantizeLinear"})
DEQUANTIZE = frozenset({"DequantizeLinear", "TRT_INT8DequantizeLinear"})
ORT_SUFFIX = "_QuantizeLinear_Input"
"""ONNX Runtime renames a graph output by this and gives its own name to what the DequantizeLinear makes."""
TEXTS: Mapping[str, str] = {
    "asymmetric": (
        "are unsigned or have a zero point, which TensorRT rejects; the symmetric range that holds theirs is up to "
        "a bit coarser"
    ),
    "not_int8": "are not quantized to INT8; they carry no INT8 range",
    "unreadable_scale": "have a scale that is computed by the network; it cannot be read",
    "conflicts": "are quantized in several places with different scales; the largest range is taken",
    "per_channel_activation": "have a range per channel; TensorRT takes one a tensor, the largest",
    "blocked_weight": "have a scale a block, not a channel",
    "int32_bias": "are INT32 biases, which TensorRT rejects; biases stay in float",
}
INTEGERS: Mapping[int, type[np.integer[Any]]] = {
    onnx.TensorProto.INT8: np.int8,
    onnx.TensorProto.INT16: np.int16,
    onnx.TensorProto.UINT16: np.uint16,
    onnx.TensorProto.INT32: np.int32,
}
HARMLESS = frozenset({"int32_bias"})
"""Remarks that cost nothing when the ranges are converted."""
INT32_MAX = 2.0**31 - 1


@dataclass(frozen=True)
class _Scale:
    """What a Q or DQ node says: scales, zero points, limits of the integers, type of the scales."""

    scale: NDArray[np.float64]
    zero: NDArray[np.float64]
    low: float
    high: float
    elem_type: str = "float32"

    @property
    def symmetric(self) -> bool:
        return self.low == -128 and not self.zero.any()

    @property
    def amax(self) -> float:
        """Half-width of the symmetric range that holds every value the integers stand for."""
        if self.symmetric:
            return float(self.scale.max(initial=0.0)) * LEVELS
        with np.errstate(all="ignore"):  # an infinite scale times 0 is NaN: passed on, not complained of
            low, high = ((limit - self.zero) * self.scale for limit in (self.low, self.high))
            return float(np.maximum(np.abs(low), np.abs(high)).max(initial=0.0))


@dataclass
class _Reader:
    model: onnx.ModelProto
    found: dict[str, TensorRange] = field(default_factory=dict)
    weights: dict[str, WeightRange] = field(default_factory=dict)
    remarks: dict[str, dict[str, None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = StoredValues(self.model)
        self.restored = {name for node in self.model.graph.node if node.op_type in DEQUANTIZE for name in node.output}

    def remark(self, code: str, name: str) -> None:
        self.remarks.setdefault(code, {})[name] = None

    def read(self, node: onnx.NodeProto) -> None:
        """Take up what a Q node, or a DQ node on stored integers, says of its tensor."""
        if len(node.input) < 2 or not node.input[0]:
            return
        constant = node.input[0] in self.stored.constants
        name = self.stored.root(node.input[0]) if constant else self.original(node.input[0])
        said = self.scale_of(node)
        if said is None:
            self.remark("unreadable_scale", name)
        elif (said.low, said.high) not in {(-128.0, 127.0), (0.0, 255.0)}:
            self.remark("int32_bias" if constant and said.high == INT32_MAX else "not_int8", name)
        elif constant:
            self.weight(name, node, said)
        elif node.op_type in QUANTIZE:
            self.activation(name, said)

    def activation(self, name: str, said: _Scale) -> None:
        if said.scale.size > 1:
            self.remark("per_channel_activation", name)
        if not said.symmetric:
            self.remark("asymmetric", name)
        exact = said.symmetric and said.scale.size == 1
        item = TensorRange.of_scale(name, float(said.scale.max())) if exact else TensorRange(name, said.amax)
        known = self.found.get(name)
        if known is not None and known.amax != item.amax:
            self.remark("conflicts", name)
        if known is None or item.amax > known.amax:
            self.found[name] = item

    def weight(self, name: str, node: onnx.NodeProto, said: _Scale) -> None:
        attributes = {item.name: item for item in node.attribute}
        if said.scale.ndim > 1 or ("block_size" in attributes and attributes["block_size"].i):
            self.remark("blocked_weight", name)
        if not said.symmetric:
            self.remark("asymmetric", name)
        if name in self.weights:
            return
        axis = attributes["axis"].i if "axis" in attributes else 1
        value = self.stored.value(node.input[0]) if node.op_type in QUANTIZE else None
        per_channel = said.scale.size > 1 and said.scale.ndim == 1
        known = value is not None and (not per_channel or -value.ndim <= axis < value.ndim)
        observed = _observed(value, axis if per_channel else None) if value is not None and known else None
        rank = None if value is None else value.ndim
        scales = said.scale if said.scale.size > 1 else said.scale.reshape(())
        self.weights[name] = WeightRange(name, scales, axis if per_channel else None, observed, rank, said.elem_type)

    def original(self, name: str) -> str:
        """Undo the renaming of graph outputs that ONNX Runtime's quantizer does."""
        base = name.removesuffix(ORT_SUFFIX)
        return base if base in self.restored else name

    def scale_of(self, node: onnx.NodeProto) -> _Scale | None:
        scale = self.stored.value(node.input[1])
        if scale is None or scale.dtype.kind != "f" or not scale.size:
            return None
        zero_name = node.input[2] if len(node.input) > 2 else ""
        zero = self.stored.value(zero_name) if zero_name else np.zeros((), self._integers(node))
        if zero is None or zero.size not in {1, scale.size} or (zero.size > 1 and zero.shape != scale.shape):
            return None
        with np.errstate(all="ignore"):  # NaN is passed on, not complained of
            wide = scale.astype(np.float64)
        if zero.dtype.kind not in "iu":  # float8 and the like
            return _Scale(wide, np.zeros(scale.shape), 0.0, 0.0)
        offsets = np.full(scale.shape, zero.flat[0]) if zero.size == 1 else zero
        return _Scale(wide, offsets.astype(np.float64), *_limits(zero.dtype), self._float_type(node.input[1], scale))

    def _float_type(self, name: str, scale: NDArray[Any]) -> str:
        """Tell what a scale is stored in; bfloat16 was read as float32."""
        stored = self.stored.initializers.get(name)
        if stored is not None and stored.data_type == onnx.TensorProto.BFLOAT16:
            return "bfloat16"
        return scale.dtype.name if scale.dtype.name in SCALE_STEPS else "float32"

    def _integers(self, node: onnx.NodeProto) -> type[np.integer[Any]]:
        """Tell the integer type where no zero point does: the stored integers' own, the attribute, else uint8."""
        stored = self.stored.initializers.get(node.input[0])
        asked = [item.i for item in node.attribute if item.name == "output_dtype" and item.i]
        kind = stored.data_type if stored is not None and node.op_type in DEQUANTIZE else asked[0] if asked else 0
        return np.int8 if node.op_type.startswith("TRT_INT8") else INTEGERS.get(kind, np.uint8)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def _observed(value: NDArray[Any], axis: int | None) -> NDArray[np.float64] | None:
    try:
        return weight_amax(value, axis) if value.dtype.kind == "f" and value.size else None
    except StatisticsError:
        return None


def read_qdq(model: onnx.ModelProto, place: str) -> RangeTable:
    """Read the range of every tensor that Q/DQ pairs of the main graph quantize.

    Args:
        model: external data loaded.
        place: the file, for messages.

    Returns:
        A table in node order; the scales of symmetric INT8 pairs are exact. Remarks name what TensorRT rejects.

    Raises:
        FormatError: the model holds no Q/DQ pair, or a name that is no text.
    """
    odd = unreadable_name(model)
    if odd is not None:
        raise FormatError(place, expected="names in UTF-8", got=odd, remedy="the file is damaged; restore it")
    reader = _Reader(model)
    for node in model.graph.node:
        stored = node.op_type in DEQUANTIZE and node.input and node.input[0] in reader.stored.constants
        if node.op_type in QUANTIZE or stored:
            reader.read(node)
    if not reader.found and not reader.weights and not reader.remarks:
        raise FormatError(
            place,
            expected="an ONNX model with QuantizeLinear and DequantizeLinear",
            got="a float model" if not model.functions else "none in its main graph",
            remedy="pass the quantized model here and the float one with --model"
            if not model.functions
            else "inline its functions first (onnx.inliner.inline_local_functions)",
        )
    producer = (_text(item) for item in (model.producer_name, model.producer_version) if item)
    metadata = {"producer": " ".join(producer)}
    weights, remarks = tuple(reader.weights.values()), tuple(_remarks(reader))
    return RangeTable(reader.found, QDQ, place, weights, order="network", metadata=metadata, remarks=remarks)


def _text(value: str | bytes) -> str:
    """Read a text field; one that is no UTF-8 comes as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _remarks(reader: _Reader) -> Iterator[Remark]:
    for code, names in reader.remarks.items():
        yield Remark(code, tuple(names), TEXTS[code], blocks=code not in HARMLESS)
