"""Tables and files for the tests of the formats."""

from __future__ import annotations

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from calib.core.formats.registry import FORMATS, WriteOptions
from calib.stages.convert import prepare
from calib.types.rangetable import RangeTable, TensorRange, WeightRange

KEYS = sorted(FORMATS)
PORTABLE = KEYS
TENSOR_KEYS = [key for key in PORTABLE if FORMATS[key].naming == "tensor"]

finite_scales = st.floats(2.0**-63, 2.0**92, width=32, allow_nan=False, allow_infinity=False)
names = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Z"]), min_size=1, max_size=12)


def table(scales: dict[str, float], naming: str = "tensor") -> RangeTable:
    """Make a table of exact scales."""
    ranges = {name: TensorRange.of_scale(name, float(np.float32(value))) for name, value in scales.items()}
    return RangeTable(ranges, "trt-cache", "made here", naming=naming)


def written(made: RangeTable, key: str) -> bytes:
    """Write a table as the job would, and answer the bytes."""
    return FORMATS[key].write(prepare(made, key, None).table, WriteOptions())


def sample(key: str) -> bytes:
    """A small file of a format."""
    naming = FORMATS[key].naming
    if naming == "module":
        made = table({"layer1.conv.input_quantizer": 0.01, "fc._input_quantizer": 0.5}, "module")
        scales = np.array([0.1, 0.2, 0.3], np.float32).astype(np.float64)
        weight = WeightRange("layer1.conv.weight_quantizer", scales, 0, rank=4)
        return FORMATS[key].write(RangeTable(made.ranges, key, "made here", (weight,), naming="module"), WriteOptions())
    return written(
        table({"image": 0.02, "/a/Conv_output_0": 0.3, "b:0": 1.5, "(Unnamed Layer* 2) [Shuffle]": 1e-9}), key
    )


def qdq_model(
    scale: np.ndarray | float = 0.5,
    zero: np.ndarray | int = 0,
    *,
    dtype: type = np.int8,
    weight_axis: int | None = 0,
    extra: tuple[onnx.NodeProto, ...] = (),
) -> onnx.ModelProto:
    """A convolution between Q/DQ pairs, scales as initialisers."""
    rng = np.random.default_rng(3)
    weight = rng.normal(0, 1, (4, 3, 1, 1)).astype(np.float32)
    amax = np.abs(weight).max((1, 2, 3)) if weight_axis is not None else np.abs(weight).max()
    stored = {
        "s": np.asarray(scale, np.float32),
        "z": np.asarray(zero, dtype),
        "w": weight,
        "ws": np.asarray(amax / 127, np.float32),
        "wz": np.zeros(np.shape(amax), np.int8),
    }
    axis = {} if weight_axis is None else {"axis": weight_axis}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], "xQ"),
        helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], "xD"),
        helper.make_node("QuantizeLinear", ["w", "ws", "wz"], ["wq"], "wQ", **axis),
        helper.make_node("DequantizeLinear", ["wq", "ws", "wz"], ["wd"], "wD", **axis),
        helper.make_node("Conv", ["xd", "wd"], ["y"], "conv"),
        *extra,
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [value("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [value("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
