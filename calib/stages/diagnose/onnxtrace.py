"""The trace of an ONNX network: one run with every tensor exposed, and its steps."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calib.core.expose import expose
from calib.core.graph import Network, Node, analyse
from calib.core.graph.constants import CONSTANT, DATA, levels
from calib.core.graph.elements import NON_TENSOR
from calib.errors import CalibError
from calib.stages.diagnose.parameters import read_parameters, slot_name
from calib.stages.diagnose.trace import Step, Trace
from calib.types.runner import Feeds, Runner, to_host

PASSING = frozenset({"Identity", "Dropout"})
SEGMENT_BYTES = 1 << 29
"""Tensors exposed at once take at most about this; a larger network is run in segments."""


class Runtime(Protocol):
    """What a diagnosis asks of a runtime."""

    def load(self, model: onnx.ModelProto, *, optimize: bool) -> Runner:
        """Load a network.

        Raises:
            CalibError: the runtime does not accept it.
        """


@dataclass
class OnnxTrace(Trace):
    """A trace with the model behind it, so that every step can be run alone.

    Attributes:
        model: the network; constants are not folded in it.
        network: its analysis.
        frozen: value of every tensor that no input decides.
        aliases: tensors behind steps that change nothing, and the tensor they equal.
        failure: why the network as a whole cannot run, or empty.
    """

    model: onnx.ModelProto = field(default_factory=onnx.ModelProto)
    network: Network | None = None
    frozen: dict[str, NDArray[Any]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    failure: str = ""

    def resolve(self, name: str) -> str:
        """The tensor that a name stands for."""
        return self.aliases.get(name, name)

    def node(self, step: Step) -> onnx.NodeProto:
        """The node of a step."""
        found: onnx.NodeProto = self.model.graph.node[step.source]
        return found


def trace_onnx(model: onnx.ModelProto, feeds: Feeds, runtime: Runtime, place: str, *, values: bool = True) -> OnnxTrace:
    """Run a network once with every tensor exposed.

    Args:
        model: external data loaded.
        feeds: one batch.
        runtime: runs it, without optimizations.
        place: what to call it.
        values: whether activations are kept; without, only what no input decides is known.

    Raises:
        ModelError: the graph is no graph, or nothing of it can be run.
    """
    network = analyse(model)
    stored = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    grade: Mapping[str, int] = levels(network.nodes, network.order, [item.name for item in network.inputs], stored)
    made = [name for index in network.order for name in network.nodes[index].outputs if name]
    tensors = [name for name in made if network.elem_types.get(name) != NON_TENSOR]
    trace = OnnxTrace(place, (), tuple(feeds), (), dict(feeds), model, network, dict(stored))
    grade = _freeze(trace, tensors, grade, feeds, runtime)
    shapes = {name: tuple(array.shape) for name, array in (*feeds.items(), *trace.frozen.items())}
    _visit_activations(trace, [name for name in tensors if grade[name] == DATA], runtime, shapes, keep=values)
    known = {name: _static(shape) for name, shape in network.shapes.items() if None not in shape} | shapes
    trace.steps = tuple(_steps(trace, grade, known))
    trace.outputs = tuple(trace.resolve(item.name) for item in network.outputs)
    return trace


def _freeze(
    trace: OnnxTrace, tensors: Sequence[str], grade: Mapping[str, int], feeds: Feeds, runtime: Runtime
) -> Mapping[str, int]:
    """Learn what no input's values decide. Where shapes cannot be had, for the network does not run, they are data."""
    constant = [name for name in tensors if grade[name] == CONSTANT]
    trace.frozen |= {name: np.array(array) for name, array in exposed(trace, constant, feeds, runtime)}
    shaped = [name for name in tensors if CONSTANT < grade[name] < DATA]
    try:
        trace.frozen |= {name: np.array(array) for name, array in exposed(trace, shaped, feeds, runtime)}
    except CalibError as error:
        trace.failure = error.got
        return {name: DATA if level > CONSTANT else level for name, level in grade.items()}
    return grade


def _static(shape: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(length for length in shape if length is not None)


def _visit_activations(
    trace: OnnxTrace, names: Sequence[str], runtime: Runtime, shapes: dict[str, tuple[int, ...]], *, keep: bool
) -> None:
    """Run everything; learn shapes, and keep the values where they are wanted."""
    feeds = {name: trace.values[name] for name in trace.inputs}
    try:
        for name, array in exposed(trace, names, feeds, runtime):
            shapes[name] = tuple(array.shape)
            if keep:
                trace.values[name] = np.array(array)
    except CalibError as error:
        trace.failure = error.got


def exposed(
    trace: OnnxTrace, names: Sequence[str], feeds: Feeds, runtime: Runtime
) -> Iterator[tuple[str, NDArray[Any]]]:
    """Run a network for some of its tensors, in segments where they are large; use each array before the next comes.

    Raises:
        CalibError: the network does not run.
    """
    if trace.network is None:
        raise AssertionError(trace.place)
    for segment in _segments(names, trace.network, feeds):
        runner = runtime.load(expose(pruned(trace.model, trace.network, segment), segment), optimize=False)
        answer = runner.run(feeds)
        yield from ((name, to_host(array)) for name, array in answer.items())


def _segments(names: Sequence[str], network: Network, feeds: Feeds) -> Iterator[list[str]]:
    rows = max((array.shape[0] for array in feeds.values() if array.ndim), default=1)
    segment: list[str] = []
    held = 0
    for name in names:
        shape = network.shapes.get(name) or ()
        size = 4 * math.prod(length or rows for length in shape)
        if segment and held + size > SEGMENT_BYTES:
            yield segment
            segment, held = [], 0
        segment.append(name)
        held += size
    if segment:
        yield segment


def pruned(model: onnx.ModelProto, network: Network, names: Iterable[str]) -> onnx.ModelProto:
    """Copy a model with only the nodes that some tensors are made from; inputs stay as they are."""
    wanted: set[int] = set()
    pending = list(names)
    while pending:
        index = network.producers.get(pending.pop())
        if index is not None and index not in wanted:
            wanted.add(index)
            pending.extend(filter(None, (*network.nodes[index].inputs, *network.nodes[index].captured)))
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    kept = [model.graph.node[index] for index in network.order if index in wanted]
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    return copy


def _steps(trace: OnnxTrace, grade: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]) -> Iterator[Step]:
    network = trace.network
    if network is None:
        raise AssertionError(trace.place)
    places = itertools.count()
    for index in network.order:
        node = network.nodes[index]
        if all(grade.get(name, 0) < DATA for name in node.outputs if name):
            continue
        if _changes_nothing(node, network):
            trace.aliases[node.outputs[0]] = trace.resolve(node.inputs[0])
            continue
        yield _step(next(places), node, trace, grade, shapes)


def _changes_nothing(node: Node, network: Network) -> bool:
    if node.domain or not node.inputs:
        return False
    if node.op_type == "Cast":
        types = [network.elem_types.get(name) for name in (node.inputs[0], node.outputs[0])]
        return types[0] is not None and types[0] == types[1]
    return node.op_type in PASSING and len([name for name in node.outputs if name]) == 1


def _step(
    place: int, node: Node, trace: OnnxTrace, grade: Mapping[str, int], shapes: Mapping[str, tuple[int, ...]]
) -> Step:
    version = trace.network.opsets.get(node.domain, 1) if trace.network else 1
    data, slots, constants, shaped = [], [], {}, set()
    for slot, name in enumerate(node.inputs):
        if not name:
            continue
        if grade[name] < DATA:
            if name in trace.frozen:
                constants[slot] = trace.frozen[name]
            if grade[name] > CONSTANT:
                shaped.add(slot_name(node, slot, version))
            continue
        data.append(trace.resolve(name))
        slots.append(slot_name(node, slot, version))
    for name in node.captured:
        if grade[name] == DATA:
            data.append(trace.resolve(name))
            slots.append("captured")
    parameters, weights = read_parameters(node, version, constants, shapes)
    kind = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
    kind = "Resize" if kind == "Upsample" else kind
    outputs = tuple(name for name in node.outputs if name)
    given = frozenset(slot_name(node, slot, version) for slot in constants)
    if kind == "Resize" and {"sizes", "scales"} & shaped:
        shaped |= {"size", "scales"}
    return Step(
        place, node.label, kind, tuple(data), outputs, parameters, weights, tuple(slots), node.index, frozenset(shaped),
        given=given,
    )  # fmt: skip
