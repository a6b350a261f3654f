"""The float network inside a Q/DQ model: pairs taken out, stored integers turned back into the floats they stand for.

For quantized models whose float original is not at hand: placed anew, the ranges of the same file then make a model
that TensorRT takes. Weights that are stored as floats come out untouched; those stored as integers come out as the
values that the integers stand for, so that quantizing them again at the same scale gives the same integers.

ONNX Runtime takes a Relu or a Relu6 out where a quantizer with zero point does its work. It is put back, for the float
network has no such quantizer, and symmetric INT8 keeps what is negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calib.core.graph.naming import fresh
from calib.core.graph.stored import StoredValues
from calib.core.graph.structure import all_graphs, subgraphs
from calib.core.qdqabsorbed import SIX, absorbed
from calib.core.qdqgrid import QONNX
from calib.core.qdqpairs import Quantizer, find_quantizers
from calib.errors import ModelError
from calib.stages.qdqread import dequantized


@dataclass(frozen=True)
class Stripped:
    """A float network and what it was taken from.

    Attributes:
        model: the float network; the quantized one is unchanged.
        quantized: tensors and constants that were quantized, by the float network's names, in order.
        uses: the inputs that read quantized values: node name (or first output) and slot.
        restored: weights that were stored as integers.
        biases: biases that were stored as integers.
        activated: tensors whose quantizer did the work of a Relu, which was put back.
    """

    model: onnx.ModelProto
    quantized: tuple[str, ...]
    uses: frozenset[tuple[str, int]]
    restored: tuple[str, ...]
    biases: tuple[str, ...]
    activated: tuple[str, ...] = ()


def strip_qdq(model: onnx.ModelProto, place: str = "model") -> Stripped:
    """Take every quantizer out of a model.

    Args:
        model: external data loaded; not changed.
        place: the file, for messages.

    Returns:
        The float network; its tensors have the names that :func:`calib.stages.qdqread.read_qdq` gives their ranges.

    Raises:
        ModelError: the network computes on integers between Q and DQ, or scales of stored integers cannot be read.
    """
    quantizers = find_quantizers(model)
    stripper = _Stripper(model, place)
    for item in quantizers:
        stripper.take(item)
    for item, clip in absorbed(model, quantizers):
        stripper.put_back(item, clip)
    answer = stripper.assemble()
    return Stripped(
        answer,
        tuple(dict.fromkeys(stripper.quantized)),
        frozenset(stripper.uses()),
        tuple(stripper.restored),
        tuple(stripper.biases),
        tuple(stripper.activated.values()),
    )


@dataclass
class _Stripper:
    model: onnx.ModelProto
    place: str
    replaced: dict[str, str] = field(default_factory=dict)
    renamed: dict[str, str] = field(default_factory=dict)
    removed: set[int] = field(default_factory=set)
    floats: dict[str, NDArray[Any]] = field(default_factory=dict)
    quantized: list[str] = field(default_factory=list)
    restored: list[str] = field(default_factory=list)
    biases: list[str] = field(default_factory=list)
    moved: set[str] = field(default_factory=set)
    restored_outputs: set[str] = field(default_factory=set)
    activated: dict[str, str] = field(default_factory=dict)
    clips: dict[str, onnx.NodeProto] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stored = StoredValues(self.model)
        self.outputs = {item.name for item in self.model.graph.output}
        self.taken = {name for graph in all_graphs(self.model.graph) for name in _names(graph)}

    def take(self, item: Quantizer) -> None:
        if item.form == "foreign":
            node = self.model.graph.node[item.restore]
            raise self.error(
                f"node {node.name or item.output!r}", f"integers that no quantizer makes ({node.input[0]!r})"
            )
        if item.form == "dangling":
            node = self.model.graph.node[item.node]
            raise self.error(f"node {node.name or item.source!r}", "quantized values that no DequantizeLinear reads")
        self.removed.update({item.node, item.restore, *item.between})
        if item.form == "stored":
            self.restore(item)
            return
        self.quantized.append(item.name)
        if item.name != item.source and not item.constant:
            self.renamed[item.source] = item.name
        for index in {item.node, item.restore, *item.between}:
            node = self.model.graph.node[index]
            self.replaced[node.output[0]] = node.input[0]
        self.moved.update(name for index in item.moved for name in self.model.graph.node[index].output)
        self.restored_outputs.add(item.output)

    def put_back(self, item: Quantizer, clip: bool) -> None:
        """Put a Relu or Relu6 behind a tensor; its result takes the tensor's name, which the ranges go by."""
        if item.source in self.activated:
            return
        before = self.free(f"{item.name}_linear")
        self.renamed[item.source], self.activated[item.source] = before, item.name
        name = self.free(f"{item.name}_activation")
        made = helper.make_node("Relu", [before], [item.name], name=name)
        if clip:
            ends = [self.free(f"{item.name}_{end}") for end in ("low", "high")]
            self.floats |= {ends[0]: np.zeros((), np.float32), ends[1]: np.asarray(SIX, np.float32)}
            made = helper.make_node("Clip", [before, *ends], [item.name], name=name)
        self.clips[before] = made

    def restore(self, item: Quantizer) -> None:
        """Turn stored integers into floats under the name of the weight that they were."""
        integers = self.stored.value(item.source)
        found = None if integers is None or item.grid is None else dequantized(integers, item.grid, item.axis)
        if found is None:
            raise self.error(f"tensor {item.name!r}", "stored integers whose scale cannot be read or does not fit")
        found = found.astype(self.float_type(item))
        bias = item.grid is not None and item.grid.kind == "INT32"
        known, name = self.floats.get(item.name), item.name
        taken = name not in self.stored.initializers if known is None else not np.array_equal(known, found)
        name = self.free(name) if taken and name != item.output else name
        self.floats[name] = found
        self.replaced[item.output] = name
        self.restored_outputs.add(item.output)
        (self.biases if bias else self.restored).append(name)
        if not bias:
            self.quantized.append(name)

    def float_type(self, item: Quantizer) -> np.dtype[Any]:
        """Tell the float type of what a DQ makes: its scale's."""
        name = self.model.graph.node[item.restore].input[1]
        if name in self.stored.initializers:
            return np.dtype(helper.tensor_dtype_to_np_dtype(self.stored.initializers[name].data_type))
        value = self.stored.value(name)
        return np.dtype(np.float32) if value is None else value.dtype

    def free(self, wanted: str) -> str:
        return fresh(wanted, self.taken)

    def error(self, where: str, got: str) -> ModelError:
        remedy = "pass the float network with --model, or quantize again in the Q/DQ format"
        return ModelError(
            f"{self.place}: {where}", expected="Q/DQ pairs around float operators", got=got, remedy=remedy
        )

    def uses(self) -> Iterator[tuple[str, int]]:
        for index, node in enumerate(self.model.graph.node):
            for slot, name in enumerate(node.input):
                if name in self.restored_outputs and index not in self.removed:
                    yield node.name or self.name_of(next(iter(node.output), "")), slot

    def name_of(self, name: str) -> str:
        """Follow a tensor to the one that stands for it in the float network."""
        asked = name
        for _ in range(len(self.replaced) + 1):
            if self.replaced.get(name, name) == name:
                break
            name = self.replaced[name]
        if name in self.activated and name != asked:
            return self.activated[name]
        return self.renamed.get(name, name)

    def assemble(self) -> onnx.ModelProto:
        """Lay the network out without the pairs, and without what only served them."""
        answer = onnx.ModelProto()
        answer.CopyFrom(self.model)
        graph = answer.graph
        kept = [node for index, node in enumerate(self.model.graph.node) if index not in self.removed]
        nodes = [item for node in kept for item in self.rewired(node)] + list(self.kept_outputs())
        nodes = _alive(nodes, self.outputs)
        used = {name for node in nodes for name in _reads(node)} | self.outputs
        del graph.node[:]
        graph.node.extend(nodes)
        self.lay_constants(graph, used)
        made = {name for node in nodes for name in node.output} - self.moved
        values = [item for item in graph.value_info if item.name in made and item.name not in self.outputs]
        del graph.value_info[:]
        graph.value_info.extend(values)
        del graph.quantization_annotation[:]
        self.drop_domains(answer)
        return answer

    def rewired(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        answer = onnx.NodeProto()
        answer.CopyFrom(node)
        answer.input[:] = [self.name_of(name) for name in node.input]
        answer.output[:] = [self.renamed.get(name, name) for name in node.output]
        for graph in subgraphs(answer):
            _rewire_inside(graph, self)
        return [answer, *(self.clips[name] for name in answer.output if name in self.clips)]

    def kept_outputs(self) -> Iterator[onnx.NodeProto]:
        """Keep the name of a graph output that a DQ made."""
        for output in sorted(self.outputs & set(self.replaced)):
            source = self.name_of(output)
            if source != output:
                yield helper.make_node("Identity", [source], [output], name=self.free(f"{output}_output"))

    def lay_constants(self, graph: onnx.GraphProto, used: set[str]) -> None:
        initializers = [item for item in graph.initializer if item.name in used and item.name not in self.floats]
        initializers += [numpy_helper.from_array(self.floats[name], name) for name in self.floats if name in used]
        gone = {item.name for item in self.model.graph.initializer} - {item.name for item in initializers}
        inputs = [item for item in graph.input if item.name not in gone | set(self.floats)]
        for kind, values in ((graph.initializer, initializers), (graph.input, inputs)):
            del kind[:]
            kind.extend(values)

    def drop_domains(self, answer: onnx.ModelProto) -> None:
        """Drop the operator sets that only the quantizers needed."""
        needed = {node.domain for graph in all_graphs(answer.graph) for node in graph.node}
        needed.update(node.domain for function in answer.functions for node in function.node)
        gone = {node.domain for node in self.model.graph.node if node.op_type in QONNX or "Quantize" in node.op_type}
        imports = [item for item in answer.opset_import if item.domain not in gone - needed or not item.domain]
        del answer.opset_import[:]
        answer.opset_import.extend(imports)


def _rewire_inside(graph: onnx.GraphProto, stripper: _Stripper) -> None:
    own = {item.name for item in graph.input} | {item.name for item in graph.initializer}
    own.update(name for node in graph.node for name in node.output)
    for node in graph.node:
        node.input[:] = [name if name in own else stripper.name_of(name) for name in node.input]
        for inner in subgraphs(node):
            _rewire_inside(inner, stripper)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from (item.name for item in (*graph.input, *graph.initializer, *graph.value_info))
    for node in graph.node:
        yield from (node.name, *node.input, *node.output)


def _reads(node: onnx.NodeProto) -> Iterator[str]:
    """List what a node reads, in its subgraphs too."""
    yield from filter(None, node.input)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (item.name for item in graph.output)


def _alive(nodes: list[onnx.NodeProto], outputs: Iterable[str]) -> list[onnx.NodeProto]:
    """Drop the nodes whose results nothing reads: scales, zero points, shapes of the pairs."""
    wanted, kept = set(outputs), [False] * len(nodes)
    makers = {name: index for index, node in enumerate(nodes) for name in node.output if name}
    pending = [makers[name] for name in wanted if name in makers]
    while pending:
        index = pending.pop()
        if kept[index]:
            continue
        kept[index] = True
        pending.extend(makers[name] for name in _reads(nodes[index]) if name in makers)
    return [node for index, node in enumerate(nodes) if kept[index]]
