"""Read the ranges out of a model with Q/DQ pairs, whoever placed them.

Works on the protobuf alone, without shape inference, so that any model that parses can be read: those of
pytorch-quantization and ModelOpt (scales behind Constant, Cast and Reshape; ``TRT_INT8QuantizeLinear``), of ONNX
Runtime (weights stored as integers), of Brevitas (Q, Clip, DQ, and QONNX's Quant) and of torchao PT2E (unsigned or with
zero points, which TensorRT rejects).
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
from calib.core.qdqgrid import Grid
from calib.core.qdqpairs import Quantizer, find_quantizers
from calib.core.quantization import weight_amax
from calib.errors import FormatError, StatisticsError
from calib.types.rangetable import RangeTable, Remark, TensorRange, WeightRange

TEXTS: Mapping[str, str] = {
    "asymmetric": "are unsigned or have a zero point, which TensorRT rejects; the symmetric range that holds theirs is",
    "exact_unsigned": "are stored as UINT8, which TensorRT rejects; the same values are in INT8 with zero point 0",
    "not_int8": "are not quantized to INT8; they carry no INT8 range",
    "narrow_bits": "are quantized to fewer than 8 bits; INT8 holds their range, of activations in finer steps",
    "narrow_range": "use -127 to 127; TensorRT goes to -128, one step further down",
    "unreadable_scale": "have a scale that is computed by the network; it cannot be read",
    "conflicts": "are quantized in several places with different scales; the largest range is taken",
    "per_channel_activation": "have a range per channel; TensorRT takes one a tensor, the largest",
    "blocked_weight": "have a scale a block, not a channel",
    "int32_bias": "are INT32 biases, which TensorRT rejects; biases stay in float",
    "foreign_integers": "are computed on integers; no quantizer tells their range",
}
HARMLESS = frozenset({"int32_bias", "narrow_range", "exact_unsigned"})
"""Remarks that cost nothing when the ranges are converted."""


@dataclass
class _Reader:
    model: onnx.ModelProto
    found: dict[str, TensorRange] = field(default_factory=dict)
    weights: dict[str, WeightRange] = field(default_factory=dict)
    parameters: dict[str, NDArray[Any]] = field(default_factory=dict)
    remarks: dict[str, dict[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = StoredValues(self.model)

    def remark(self, code: str, name: str, cost: float = 0.0) -> None:
        known = self.remarks.setdefault(code, {})
        known[name] = max(cost, known.get(name, 0.0))

    def read(self, item: Quantizer) -> None:
        """Take up what a quantizer says of its tensor."""
        grid = item.grid
        if item.form == "foreign":
            self.remark("foreign_integers", item.output)
        elif grid is None:
            self.remark("unreadable_scale", item.name)
        elif item.form == "stored" and grid.kind == "INT32":
            self.remark("int32_bias", item.name)
        elif not (grid.eight_bits or (grid.kind != "other" and grid.high - grid.low < 255)):
            self.remark("not_int8", item.name)
        else:
            self.oddities(item, grid)
            (self.weight if item.constant else self.activation)(item, grid)

    def oddities(self, item: Quantizer, grid: Grid) -> None:
        """Remark on what of a grid INT8 does not have."""
        if not grid.eight_bits:
            self.remark("narrow_bits", item.name)
        elif not grid.symmetric:
            self.remark("asymmetric", item.name, grid.cost)
        elif grid.low >= 0:
            self.remark("exact_unsigned", item.name)
        elif grid.low == -127 and not item.constant:
            self.remark("narrow_range", item.name)

    def activation(self, item: Quantizer, grid: Grid) -> None:
        name = item.name
        if grid.scale.size > 1:
            self.remark("per_channel_activation", name)
        exact = grid.symmetric and grid.scale.size == 1
        scale = float(grid.scale.max())
        found = TensorRange.of_scale(name, scale) if exact else TensorRange(name, grid.amax)
        if grid.symmetric and not exact:
            found = TensorRange(name, scale * 127)
        known = self.found.get(name)
        if known is not None and known.amax != found.amax:
            self.remark("conflicts", name)
        if known is None or found.amax > known.amax:
            self.found[name] = found

    def weight(self, item: Quantizer, grid: Grid) -> None:
        """Take a weight's scales, where INT8 with zero point 0 has its values at them."""
        name = item.name
        value = self.value(item, grid)
        per_channel = grid.scale.size > 1
        if value is not None and value.dtype.kind == "f":
            self.parameters.setdefault(name, value)
        if per_channel and item.axis is None:
            self.remark("blocked_weight", name)
        if name in self.weights or not (grid.symmetric or not grid.eight_bits) or grid.zero.any():
            return
        scales = grid.scale.reshape(-1) if per_channel else grid.scale.reshape(())
        known = value is not None and (item.axis is None or -value.ndim <= item.axis < value.ndim)
        observed = _observed(value, item.axis) if value is not None and known else None
        rank = None if value is None else value.ndim
        self.weights[name] = WeightRange(name, scales, item.axis, observed, rank, grid.elem_type)

    def value(self, item: Quantizer, grid: Grid) -> NDArray[Any] | None:
        """Read a constant as a float: as it is stored, or what its integers stand for."""
        value = self.stored.value(item.source)
        return dequantized(value, grid, item.axis) if item.form == "stored" and value is not None else value


def dequantized(integers: NDArray[Any], grid: Grid, axis: int | None) -> NDArray[np.float32] | None:
    """Compute what stored integers stand for: ``(q - zero) * scale`` in float32, as runtimes do it.

    Args:
        integers: any integer array.
        grid: theirs.
        axis: of the scales, None for a single one.

    Returns:
        float32, shape of ``integers``; None where the scales do not fit it.
    """
    shape = [1] * integers.ndim
    if grid.scale.size > 1:
        if axis is None or not -integers.ndim <= axis < integers.ndim or integers.shape[axis] != grid.scale.size:
            return None
        shape[axis] = grid.scale.size
    with np.errstate(all="ignore"):
        whole = integers.astype(np.float32) - grid.zero.astype(np.float32).reshape(shape if grid.scale.size > 1 else ())
        scale = grid.scale.astype(np.float32).reshape(shape if grid.scale.size > 1 else ())
        return np.asarray(whole * scale, np.float32)


def _observed(value: NDArray[Any], axis: int | None) -> NDArray[np.float64] | None:
    try:
        return weight_amax(value, axis) if value.dtype.kind == "f" and value.size else None
    except StatisticsError:
        return None


def read_qdq(model: onnx.ModelProto, place: str) -> RangeTable:
    """Read the range of every tensor that the quantizers of the main graph quantize.

    Args:
        model: external data loaded.
        place: the file, for messages.

    Returns:
        A table in node order; the scales of symmetric INT8 pairs are exact. Remarks name what TensorRT rejects.

    Raises:
        FormatError: the model holds no quantizer, or a name that is no text.
    """
    odd = unreadable_name(model)
    if odd is not None:
        raise FormatError(place, expected="names in UTF-8", got=odd, remedy="the file is damaged; restore it")
    reader = _Reader(model)
    for item in find_quantizers(model):
        reader.read(item)
    if not reader.found and not reader.weights and not reader.remarks:
        raise _no_quantizer(model, place)
    producer = (_text(item) for item in (model.producer_name, model.producer_version) if item)
    return RangeTable(
        reader.found,
        QDQ,
        place,
        tuple(reader.weights.values()),
        order="network",
        metadata={"producer": " ".join(producer)},
        remarks=tuple(_remarks(reader)),
        parameters=reader.parameters,
    )


def _no_quantizer(model: onnx.ModelProto, place: str) -> FormatError:
    operators = sorted({node.op_type for node in model.graph.node} & INTEGER_OPERATORS)
    got, remedy = "a float model", "pass the quantized model here and the float one with --model"
    if operators:
        got = f"operators on integers ({', '.join(operators)})"
        remedy = "quantize again in the Q/DQ format (ONNX Runtime: quant_format=QuantFormat.QDQ)"
    elif model.functions:
        got = "none in its main graph"
        remedy = "inline its functions first (onnx.inliner.inline_local_functions)"
    return FormatError(place, expected="an ONNX model with QuantizeLinear and DequantizeLinear", got=got, remedy=remedy)


INTEGER_OPERATORS = frozenset(
    {"QLinearConv", "QLinearMatMul", "QLinearAdd", "QLinearMul", "QLinearConcat", "QLinearGlobalAveragePool"}
    | {"QLinearAveragePool", "QLinearSigmoid", "QGemm", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear"}
)
"""Operators that compute on integers themselves; TensorRT takes none of them."""


def _text(value: str | bytes) -> str:
    """Read a text field; one that is no UTF-8 comes as bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _remarks(reader: _Reader) -> Iterator[Remark]:
    for code, names in reader.remarks.items():
        text = TEXTS[code]
        if code == "asymmetric":
            least, most = min(names.values()), max(names.values())
            text += f" {least:.2f} to {most:.2f} bits coarser" if least < most else f" {most:.2f} bits coarser"
        yield Remark(code, tuple(names), text, blocks=code not in HARMLESS)
