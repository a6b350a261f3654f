"""Small graphs that lint rules hold against: float layers, Q/DQ pairs, resizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.graphs import model, node, weight

IMAGE = {"x": (1, 3, 16, 16)}
OPEN = {"x": ("N", 3, "H", "W")}
INT8_ZERO = np.array(0, np.int8)


def resize(
    before: Sequence[int | str],
    *,
    scales: Sequence[float] | None = None,
    sizes: Sequence[int] | None = None,
    opset: int = 17,
    **attributes,
) -> onnx.ModelProto:
    """Make one Resize with constant scales or sizes."""
    weights = {
        name: np.array(value, dtype)
        for name, value, dtype in (("scales", scales, np.float32), ("sizes", sizes, np.int64))
        if value is not None
    }
    inputs = f"x,,{'scales' if scales is not None else ''},{'sizes' if sizes is not None else ''}".rstrip(",")
    return model([node("Resize", inputs, "y", **attributes)], {"x": before}, ["y"], weights, opset=opset)


def single(op_type: str, shape: Sequence[int | str] = (1, 3, 16, 16), *, opset: int = 17, **attributes):
    """Make a network of one node with one input and one output."""
    return model([node(op_type, "x", "y", **attributes)], {"x": shape}, ["y"], opset=opset)


def conv(
    weights: Mapping[str, np.ndarray] | None = None,
    shape: Sequence[int | str] = (1, 3, 16, 16),
    *,
    opset: int = 17,
    **attributes,
) -> onnx.ModelProto:
    """Make one convolution."""
    return model(
        [node("Conv", "x,w", "y", **attributes)],
        {"x": shape},
        ["y"],
        {"w": weight(4, 3, 3, 3)} if weights is None else weights,
        opset=opset,
    )


def batchnorm(
    *,
    channels: int = 4,
    variance: np.ndarray | None = None,
    scale: np.ndarray | None = None,
    opset: int = 17,
    **attributes,
) -> onnx.ModelProto:
    """Make a BatchNormalization behind a Relu, so that nothing folds it."""
    ones, zeros = np.ones(channels, np.float32), np.zeros(channels, np.float32)
    weights = {
        "s": ones if scale is None else scale,
        "b": zeros,
        "m": zeros,
        "v": ones if variance is None else variance,
    }
    nodes = [node("Relu", "x", "r"), node("BatchNormalization", "r,s,b,m,v", "y", **attributes)]
    return model(nodes, {"x": (1, channels, 8, 8)}, ["y"], weights, opset=opset)


class Pairs:
    """Builds a network with Q/DQ pairs: each call adds nodes and answers the name of what they make."""

    def __init__(self, inputs: Mapping[str, Sequence[int | str]] | None = None) -> None:
        self.inputs = dict(inputs or {"x": (1, 4, 16, 16)})
        self.nodes: list[onnx.NodeProto] = []
        self.weights: dict[str, np.ndarray] = {}
        self.opsets: list[onnx.OperatorSetIdProto] = []
        self._count = 0

    def fresh(self, stem: str) -> str:
        """Make up a name."""
        self._count += 1
        return f"{stem}{self._count}"

    def store(self, stem: str, value: np.ndarray) -> str:
        """Store a constant."""
        name = self.fresh(stem)
        self.weights[name] = np.asarray(value)
        return name

    def op(self, op_type: str, *inputs: str, **attributes) -> str:
        """Add a node of one output."""
        made = self.fresh(op_type.lower())
        self.nodes.append(helper.make_node(op_type, list(inputs), [made], f"n_{made}", **attributes))
        return made

    def pair(self, name: str, scale: object = 0.1, zero: object = INT8_ZERO, **attributes) -> str:
        """Put a pair on a tensor; ``zero=None`` leaves the zero point out."""
        extra = [self.store("scale", np.asarray(scale, np.float32) if np.isscalar(scale) else np.asarray(scale))]
        if zero is not None:
            extra.append(self.store("zero", np.asarray(zero)))
        quantized = self.op("QuantizeLinear", name, *extra, **attributes)
        return self.op("DequantizeLinear", quantized, *extra, **attributes)

    def weight(self, *shape: int, axis: int | None = 0, seed: int = 0, **attributes) -> str:
        """Store a weight as INT8 with one scale per index of an axis, None for a single one."""
        value = weight(*shape, seed=seed)
        others = tuple(i for i in range(len(shape)) if i != axis)
        amax = np.abs(value).max(axis=others) if axis is not None else np.abs(value).max()
        scale = np.asarray(amax / 127, np.float32)
        spread = scale if axis is None else scale.reshape([-1 if i == axis else 1 for i in range(len(shape))])
        stored = self.store("w", np.clip(np.rint(value / spread), -128, 127).astype(np.int8))
        extra = {"axis": axis, **attributes} if axis is not None else attributes
        zeros = np.zeros_like(scale, np.int8)
        return self.op("DequantizeLinear", stored, self.store("ws", scale), self.store("wz", zeros), **extra)

    def conv(
        self, name: str, out: int, cin: int = 4, *, kernel: int = 1, int8: bool = True, scale: float = 0.1, **attrs
    ):
        """Add a convolution, in INT8 by default."""
        if not int8:
            return self.op("Conv", name, self.store("w", weight(out, cin, kernel, kernel)), **attrs)
        return self.op("Conv", self.pair(name, scale), self.weight(out, cin, kernel, kernel), **attrs)

    def done(self, *outputs: str, opset: int = 17) -> onnx.ModelProto:
        """Make the model."""
        return model(self.nodes, self.inputs, list(outputs), self.weights, opset=opset, opsets=self.opsets)


def edited(made: onnx.ModelProto, edit) -> onnx.ModelProto:
    """Change a model in place and answer it."""
    edit(made)
    return made


def constant(name: str, value: np.ndarray) -> onnx.TensorProto:
    """Make an initialiser."""
    return numpy_helper.from_array(value, name)
