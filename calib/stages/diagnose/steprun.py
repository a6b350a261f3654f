"""A step of a trace as a network of its own: run alone on given tensors, as it is or with a change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from calib.core.graph import Node
from calib.errors import CalibError
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.parameters import attribute_defaults, slot_name
from calib.stages.diagnose.trace import Arrays, Step
from calib.types.runner import to_host


@dataclass(frozen=True)
class Mend:
    """A change to a step before it is run alone.

    Attributes:
        parameters: attributes or constant inputs to replace, by name; None takes one away.
        weights: constant float operands to replace, by name.
        order: data operands in another order: for each place, the place it is taken from.
    """

    parameters: Mapping[str, Any] = field(default_factory=dict)
    weights: Arrays = field(default_factory=dict)
    order: tuple[int, ...] = ()


AS_IT_IS = Mend()


def run_step(trace: OnnxTrace, step: Step, data: Arrays, runtime: Runtime, mend: Mend = AS_IT_IS) -> Arrays | None:
    """Run one step alone on given tensors.

    Args:
        trace: where the step is from.
        step: the step.
        data: value of every tensor it computes on.
        runtime: runs it.
        mend: changes to make first.

    Returns:
        its outputs, or None where it cannot run on them.
    """
    try:
        model = step_model(trace, step, data, mend)
        feeds = {item.name: np.ascontiguousarray(data[item.name]) for item in model.graph.input}
        answer = runtime.load(model, optimize=False).run(feeds)
        return {name: np.array(to_host(array)) for name, array in answer.items()}
    except (CalibError, KeyError, ValueError, TypeError):
        return None


def step_model(trace: OnnxTrace, step: Step, data: Arrays, mend: Mend = AS_IT_IS) -> onnx.ModelProto:
    """One step as a model: constants as initialisers, what it computes on as inputs."""
    node = onnx.NodeProto()
    node.CopyFrom(trace.node(step))
    network = trace.network
    if network is None:
        raise AssertionError(trace.place)
    own = network.nodes[step.source]
    constants = _constants(trace, own, node)
    _apply(mend, node, own, network.opsets.get(own.domain, 1), constants)
    for slot, name in enumerate(node.input):
        node.input[slot] = trace.resolve(name) if name not in constants else name
    named = [name for name in (*node.input, *(trace.resolve(item) for item in own.captured)) if name]
    inputs = [name for name in dict.fromkeys(named) if name in data and name not in constants]
    outputs = [helper.make_empty_tensor_value_info(name) for name in step.outputs]
    graph = helper.make_graph(
        [node],
        "step",
        [helper.make_tensor_value_info(name, _type_of(data[name]), data[name].shape) for name in inputs],
        outputs,
        [numpy_helper.from_array(np.ascontiguousarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(
        graph,
        opset_imports=list(trace.model.opset_import),
        ir_version=max(trace.model.ir_version, 7),
        functions=list(trace.model.functions),
    )


def _type_of(array: NDArray[Any]) -> int:
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))


def _constants(trace: OnnxTrace, own: Node, node: onnx.NodeProto) -> dict[str, NDArray[Any]]:
    names = [name for name in (*node.input, *own.captured) if name in trace.frozen]
    return {name: trace.frozen[name] for name in names}


def _apply(mend: Mend, node: onnx.NodeProto, own: Node, version: int, constants: dict[str, NDArray[Any]]) -> None:
    slots = {slot_name(own, slot, version): slot for slot in range(len(node.input))}
    for name, array in mend.weights.items():
        _replace_input(node, slots, name, array, constants)
    known = attribute_defaults(own.op_type, own.domain, version).keys() | {item.name for item in node.attribute}
    for name, value in mend.parameters.items():
        if name in slots and node.input[slots[name]]:
            if value is None:
                node.input[slots[name]] = ""
            else:
                old = constants[node.input[slots[name]]]
                _replace_input(node, slots, name, np.asarray(value, old.dtype), constants)
        else:
            _set_attribute(node, name, value, known=name in known)
    if mend.order:
        data = [slot for slot, name in enumerate(node.input) if name and name not in constants]
        names = [node.input[slot] for slot in data]
        for place, source in enumerate(mend.order):
            node.input[data[place]] = names[source]


def _replace_input(
    node: onnx.NodeProto, slots: dict[str, int], name: str, array: NDArray[Any], constants: dict[str, NDArray[Any]]
) -> None:
    if name not in slots:
        raise KeyError(name)
    new = f"{node.input[slots[name]] or name}/mended"
    node.input[slots[name]] = new
    constants[new] = array


def _set_attribute(node: onnx.NodeProto, name: str, value: Any, *, known: bool) -> None:
    kept = [item for item in node.attribute if item.name != name]
    if len(kept) == len(node.attribute) and not known and value is None:
        return
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))
