"""Quantizers that do the work of a Relu: their range begins at 0, and what they read need not."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.core.graph.stored import StoredValues
from calib.core.qdqgrid import DEQUANTIZE, QUANTIZE, Grid
from calib.core.qdqpairs import REMOVED, Quantizer

SIX = 6.0
"""Where a Relu6 ends."""
NON_NEGATIVE = frozenset(
    {"Relu", "Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Abs", "Exp", "Sqrt", "ReduceL1", "ReduceL2", "ArgMax"}
)
KEEPING = frozenset(
    {"MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "Concat", "Add", "Mul", "Max", "Sum", "Mean"}
    | {"ReduceMean", "ReduceMax", "ReduceSum", "Resize", "Upsample", "Identity", "Dropout", "Cast", "Transpose"}
    | {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Slice", "Split", "Gather", "Expand", "Tile", "DepthToSpace"}
    | {"SpaceToDepth", "Pad"}
)
"""Operators whose results are not negative where their inputs are not."""
DEEP = 64


def absorbed(model: onnx.ModelProto, quantizers: tuple[Quantizer, ...]) -> Iterator[tuple[Quantizer, bool]]:
    """Find the quantizers that stand for a Relu or, where the second value is true, for a Relu6.

    A tensor that cannot be negative, or that the network is fed, has none to put back.
    """
    finder = _Finder(model, quantizers)
    fed = {item.name for item in model.graph.input}
    for item in quantizers:
        if item.constant or item.grid is None or item.source in fed or item.form not in {"pair", "single"}:
            continue
        if begins_at_zero(item.grid) and not finder.non_negative(item.source):
            yield item, ends_at_six(item.grid)


def begins_at_zero(grid: Grid) -> bool:
    """Whether the smallest value is 0."""
    return bool((grid.ends[0] == 0).all())


def ends_at_six(grid: Grid) -> bool:
    """Whether the largest value is 6, to a step."""
    return bool((abs(grid.ends[1] * grid.scale - SIX) <= grid.scale).all())


class _Finder:
    def __init__(self, model: onnx.ModelProto, quantizers: tuple[Quantizer, ...]) -> None:
        self.stored = StoredValues(model)
        self.makers = {name: node for node in model.graph.node for name in node.output if name}
        self.at_zero = {item.output for item in quantizers if item.grid is not None and begins_at_zero(item.grid)}
        self.known: dict[str, bool] = {}

    def non_negative(self, name: str, depth: int = DEEP) -> bool:
        """Whether a tensor cannot be negative."""
        if name not in self.known:
            self.known[name] = False  # while it is being found out
            self.known[name] = name in self.at_zero or (depth > 0 and self._by_maker(name, depth - 1))
        return self.known[name]

    def _by_maker(self, name: str, depth: int) -> bool:
        maker = self.makers.get(name)
        if maker is None:
            value = self.stored.value(name) if name in self.stored.constants else None
            return value is not None and value.dtype.kind in "fiu" and not (value < 0).any()
        if maker.op_type in NON_NEGATIVE:
            return True
        if maker.op_type == "Clip":
            return self._clips_below(maker) or self.non_negative(maker.input[0], depth)
        if maker.op_type in KEEPING | QUANTIZE | DEQUANTIZE | REMOVED:
            single = maker.op_type not in {"Concat", "Add", "Mul", "Max", "Sum", "Mean"}
            read = list(maker.input)[:1] if single else [item for item in maker.input if item]
            return all(self.non_negative(item, depth) for item in read)
        return False

    def _clips_below(self, node: onnx.NodeProto) -> bool:
        bounds = [item.f for item in node.attribute if item.name == "min"]
        value = self.stored.value(node.input[1]) if len(node.input) > 1 and node.input[1] else None
        lowest = float(value.reshape(-1)[0]) if value is not None and value.size == 1 else next(iter(bounds), -1.0)
        return lowest >= 0
