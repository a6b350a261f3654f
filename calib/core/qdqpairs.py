"""Quantizers in a graph: pairs of Q and DQ, DQ on stored integers, and QONNX's nodes, with what stands between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import onnx

from calib.core.graph.stored import StoredValues
from calib.core.qdqgrid import DEQUANTIZE, QONNX, QUANTIZE, Grid, GridReader, attribute, long_axis

ORT_INPUT, ORT_OUTPUT, ORT_STORED = "_QuantizeLinear_Input", "_DequantizeLinear_Output", "_quantized"
"""ONNX Runtime renames a graph output by the first and gives its own name to what the DequantizeLinear makes; it names
the weights that it stores as integers by the last."""
REMOVED = frozenset({"Clip", "Identity"})
"""Operators on integers between Q and DQ that go with the pair."""
MOVED = frozenset({"Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "MaxPool", "Slice", "Gather", "Expand"})
"""Operators on integers between Q and DQ that move values only: they stay, in float."""
DEEP = 32

Form = Literal["pair", "stored", "single", "dangling", "foreign"]


@dataclass(frozen=True, eq=False)
class Quantizer:
    """A place where a graph quantizes.

    Attributes:
        form: ``pair`` of Q and DQ; ``stored`` integers with a DQ; ``single`` node that does both (QONNX); ``dangling``:
            a Q that no DQ reads; ``foreign``: a DQ on integers that neither a Q nor the file makes.
        source: the tensor it reads: an activation, a float constant, or the stored integers.
        name: that tensor's name as the float network has it.
        output: the float tensor it makes, empty where it is dangling.
        node: index of its Q, or of its one node.
        restore: index of its DQ, or of its one node.
        between: indices of the nodes between that go with the pair.
        moved: indices of the nodes between that move values only, and stay.
        constant: whether it quantizes a constant.
        grid: None where scale or zero point cannot be read.
        axis: axis of the scales; None for a single one.
    """

    form: Form
    source: str
    name: str
    output: str
    node: int
    restore: int
    between: tuple[int, ...]
    moved: tuple[int, ...]
    constant: bool
    grid: Grid | None
    axis: int | None


class _Finder:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.nodes = model.graph.node
        self.stored = StoredValues(model)
        self.grids = GridReader(self.stored)
        self.makers = {name: index for index, node in enumerate(self.nodes) for name in node.output if name}
        self.restored = {name for node in self.nodes if node.op_type in DEQUANTIZE for name in node.output}

    def find(self) -> Iterator[Quantizer]:
        paired: set[int] = set()
        for index, node in enumerate(self.nodes):
            if node.op_type in QONNX and node.input and node.input[0]:
                yield self.single(index)
            elif node.op_type in DEQUANTIZE and node.input and node.input[0]:
                found = self.restoring(index)
                paired.add(found.node)
                yield found
        for index, node in enumerate(self.nodes):
            if node.op_type in QUANTIZE and index not in paired and node.input and node.input[0]:
                yield self.made("dangling", node.input[0], "", index, index, ())

    def single(self, index: int) -> Quantizer:
        node = self.nodes[index]
        return self.made("single", node.input[0], node.output[0], index, index, ())

    def restoring(self, index: int) -> Quantizer:
        """Follow a DQ back through what may stand on its integers."""
        node = self.nodes[index]
        name, passed = node.input[0], []
        for _ in range(DEEP):
            maker = self.makers.get(name)
            step = self.nodes[maker] if maker is not None else None
            if maker is None or step is None or step.op_type in QUANTIZE or name in self.stored.initializers:
                break
            if step.op_type not in REMOVED | MOVED or not step.input:
                break
            passed.append(maker)
            name = step.input[0]
        maker = self.makers.get(name)
        if maker is not None and self.nodes[maker].op_type in QUANTIZE and self.nodes[maker].input:
            return self.made("pair", self.nodes[maker].input[0], node.output[0], maker, index, tuple(passed))
        form: Form = "stored" if node.input[0] in self.stored.constants else "foreign"
        return self.made(form, node.input[0], node.output[0], index, index, ())

    def made(self, form: Form, source: str, output: str, node: int, restore: int, passed: tuple[int, ...]) -> Quantizer:
        between = tuple(index for index in passed if self.nodes[index].op_type in REMOVED)
        moved = tuple(index for index in passed if self.nodes[index].op_type not in REMOVED)
        constant = source in self.stored.constants
        grid = self.grids.of_node(self.nodes[node])
        for index in between:
            if grid is not None and self.nodes[index].op_type == "Clip":
                grid = grid.clipped(*self.grids.clip_of(self.nodes[index]))
        axis = None if grid is None or grid.scale.size == 1 else self.axis(self.nodes[node], grid)
        name = self.weight_name(source, output) if constant else self.original(source)
        return Quantizer(form, source, name, output, node, restore, between, moved, constant, grid, axis)

    def axis(self, node: onnx.NodeProto, grid: Grid) -> int | None:
        if node.op_type in QONNX:
            return long_axis(grid.scale.shape)
        return int(attribute(node, "axis", 1)) if grid.scale.ndim == 1 else None

    def original(self, name: str) -> str:
        """Undo the renaming of graph outputs that ONNX Runtime's quantizer does."""
        base = name.removesuffix(ORT_INPUT)
        return base if base in self.restored else name

    def weight_name(self, source: str, output: str) -> str:
        root = self.stored.root(source)
        base = root.removesuffix(ORT_STORED)
        return base if base and output in {base, f"{base}{ORT_OUTPUT}"} else root


def find_quantizers(model: onnx.ModelProto) -> tuple[Quantizer, ...]:
    """Find every quantizer of a model's main graph, in the order of their first nodes.

    Args:
        model: external data loaded.
    """
    return tuple(sorted(_Finder(model).find(), key=lambda item: (item.node, item.restore)))
