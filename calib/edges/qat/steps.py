"""From the nodes of an ONNX graph to the steps that run it: what is folded, what stays on the CPU, what is freed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import torch
from onnx import numpy_helper

from calib.core.graph import ConstantReader, Network, Node
from calib.core.graph.constants import SHAPE_SLOTS
from calib.edges.qat.ops import OPERATORS, Call, Operator
from calib.errors import ModelError

Tensor = Any
HOST_SLOTS: Mapping[str, Collection[int]] = {
    **SHAPE_SLOTS, "Clip": (1, 2), "Pow": (1,), "Pad": (1, 2, 3), "OneHot": (1,), "CumSum": (1,), "Trilu": (1,),
    "Upsample": (1,), "MaxUnpool": (2,), "ReduceMean": (1,), "ReduceSum": (1,), "ReduceMax": (1,), "ReduceMin": (1,),
    "ReduceProd": (1,), "ReduceL1": (1,), "ReduceL2": (1,), "ReduceSumSquare": (1,), "ReduceLogSum": (1,),
    "ReduceLogSumExp": (1,),
}  # fmt: skip
"""Inputs that are read as numbers: asking a GPU for them would stop it."""


MOVING, ON_DEVICE, ON_HOST, OMITTED = "moving", "device", "host", ""


@dataclass(frozen=True)
class Step:
    """One node to run.

    Attributes:
        call: the node.
        run: its implementation.
        sources: where each input comes from: computed before (``moving``), a constant beside the data (``device``) or
            on the CPU (``host``), or omitted (empty).
        frees: tensors nobody reads after it.
    """

    call: Call
    run: Operator
    sources: tuple[str, ...]
    frees: tuple[str, ...] = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle without the implementation, which may be a closure: the node tells which it is."""
        return _restore, (self.call, self.sources, self.frees)


def _restore(call: Call, sources: tuple[str, ...], frees: tuple[str, ...]) -> Step:
    return Step(call, find_operator(call.node), sources, frees)


@dataclass
class Program:
    """A network as steps and constants.

    Attributes:
        steps: the nodes that have to run, in order.
        device: constants that meet data, by name.
        host: constants that are read as numbers, or meet only such, by name.
    """

    steps: list[Step] = field(default_factory=list)
    device: dict[str, Tensor] = field(default_factory=dict)
    host: dict[str, Tensor] = field(default_factory=dict)


def compile_network(
    model: onnx.ModelProto, network: Network, trained: Collection[str], outputs: Sequence[str]
) -> Program:
    """Lay out the steps that compute the outputs.

    Args:
        model: external data loaded.
        network: its analysis.
        trained: constants that become parameters; what is made of them is computed anew at each run.
        outputs: the tensors wanted.

    Raises:
        ModelError: an operator that is not known here.
    """
    constants = _Constants(model, network, frozenset(trained))
    program, hosted = Program(), set[str]()
    for node in _needed(network, outputs):
        if constants.holds(node):
            continue
        step = Step(_call(model, node, network), find_operator(node), tuple(_sources(node, constants, hosted)))
        program.steps.append(step)
        for name, source in zip(node.inputs, step.sources, strict=True):
            if source in (ON_DEVICE, ON_HOST):
                (program.host if source == ON_HOST else program.device)[name] = constants.value(name)
    for name in outputs:
        if name not in constants.moving:
            program.device[name] = constants.value(name)
    program.steps = list(_with_frees(program.steps, set(outputs)))
    return program


def _sources(node: Node, constants: _Constants, hosted: set[str]) -> Iterator[str]:
    """Say where each input comes from; a node that meets only numbers stays on the CPU, and its outputs too."""
    names = [name for name in node.inputs if name]
    on_host = all(name not in constants.moving or name in hosted for name in names)
    if on_host or node.op_type in {"Shape", "Size"}:
        hosted.update(filter(None, node.outputs))
    for slot, name in enumerate(node.inputs):
        if not name or name in constants.moving:
            yield MOVING if name else OMITTED
        else:
            yield ON_HOST if on_host or slot in HOST_SLOTS.get(node.op_type, ()) else ON_DEVICE


def find_operator(node: Node) -> Operator:
    """Find a node's implementation.

    Raises:
        ModelError: there is none.
    """
    found = None if node.domain else OPERATORS.get(node.op_type)
    if found is None:
        name = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
        raise ModelError(
            f"node {node.label}",
            expected="an operator that can be trained through here",
            got=name,
            remedy="export the network without it; control flow and custom operators cannot be trained",
        )
    return found


def _needed(network: Network, outputs: Iterable[str]) -> list[Node]:
    """The nodes that the outputs depend on, in network order."""
    wanted: set[int] = set()
    pending = list(outputs)
    while pending:
        index = network.producers.get(pending.pop())
        if index is not None and index not in wanted:
            wanted.add(index)
            node = network.nodes[index]
            pending.extend(filter(None, (*node.inputs, *node.captured)))
    return [network.nodes[index] for index in network.order if index in wanted]


def _call(model: onnx.ModelProto, node: Node, network: Network) -> Call:
    tensors = {item.name: as_tensor(item.t) for item in model.graph.node[node.index].attribute if item.HasField("t")}
    return Call(node, network.opset, tensors)


def as_tensor(proto: onnx.TensorProto) -> Tensor:
    """Decode a stored tensor; types that PyTorch lacks come in the next larger one."""
    array = np.array(numpy_helper.to_array(proto))
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.astype(np.float32)).to(torch.bfloat16)
    if array.dtype.kind == "u" and array.dtype.itemsize > 1:
        array = array.astype(np.int64)
    return torch.from_numpy(array)


class _Constants:
    """Tells what depends on untrained constants alone, and computes it."""

    def __init__(self, model: onnx.ModelProto, network: Network, trained: frozenset[str]) -> None:
        self._network = network
        self._reader = ConstantReader(model, network)
        self._initializers = {item.name: item for item in model.graph.initializer}
        self._values: dict[str, Tensor] = {}
        self.moving = set(trained) | {item.name for item in network.inputs}
        """Tensors that are not constant here: data, shapes of data, and whatever is made of parameters."""

    def holds(self, node: Node) -> bool:
        """Whether a node's outputs are constants (or a parameter's start value), and so need no step."""
        moving = any(name in self.moving for name in (*node.inputs, *node.captured))
        if not moving and set(filter(None, node.outputs)) <= self._network.constants:
            return True
        self.moving.update(filter(None, node.outputs))
        return False

    def value(self, name: str) -> Tensor:
        """Read a constant.

        Raises:
            ModelError: it cannot be computed.
        """
        if name not in self._values:
            stored = self._initializers.get(name)
            found = self._reader.value(name) if stored is None else None
            if stored is None and found is not None:
                stored = numpy_helper.from_array(found)
            if stored is None:
                raise ModelError(
                    f"tensor {name!r}",
                    expected="a constant whose value can be computed",
                    got="none",
                    remedy="fold the network's constants first, for example with onnxsim",
                )
            self._values[name] = as_tensor(stored)
        return self._values[name]


def _with_frees(steps: list[Step], kept: set[str]) -> Iterator[Step]:
    """Say after which step each tensor is read no more."""
    last = {name: place for place, step in enumerate(steps) for name in step.call.node.inputs if name}
    for place, step in enumerate(steps):
        names = [*filter(None, step.call.node.inputs), *filter(None, step.call.node.outputs)]
        gone = tuple(dict.fromkeys(name for name in names if last.get(name, place) == place and name not in kept))
        yield replace(step, frees=gone)
