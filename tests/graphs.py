"""Small ONNX graphs for tests, and a minmax observer that runs them in ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.core.graph import analyse

FLOAT = onnx.TensorProto.FLOAT


def node(op_type: str, inputs: str, outputs: str, **attributes) -> onnx.NodeProto:
    """Make a node from comma-separated names; it is named after its first output."""
    outs = outputs.split(",")
    return helper.make_node(op_type, inputs.split(",") if inputs else [], outs, name=f"n_{outs[0]}", **attributes)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int | str]],
    outputs: Sequence[str],
    weights: Mapping[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    elem_type: int = FLOAT,
    opsets: Sequence[onnx.OperatorSetIdProto] = (),
    output_type: int | None = None,
) -> onnx.ModelProto:
    """Make a model whose inputs have one element type and whose outputs have the inferred shape."""
    made = {name for item in nodes for name in item.output}
    assert set(outputs) <= made
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, elem_type, list(shape)) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, output_type or elem_type, None) for name in outputs],
        [numpy_helper.from_array(value, name) for name, value in (weights or {}).items()],
    )
    imports = [helper.make_opsetid("", opset), *opsets]
    made_model = helper.make_model(graph, opset_imports=imports, ir_version=8 if opset < 19 else 9)
    try:
        shaped = onnx.shape_inference.infer_shapes(made_model).graph.output
    except onnx.shape_inference.InferenceError:
        return made_model
    for declared, found in zip(made_model.graph.output, shaped, strict=True):
        declared.CopyFrom(found)
    return made_model


def weight(*shape: int, seed: int = 0, dtype=np.float32) -> np.ndarray:
    """Draw a weight with channels of different range."""
    rng = np.random.default_rng(seed)
    spread = np.exp(rng.normal(0, 1, (shape[0],) + (1,) * (len(shape) - 1)))
    return (rng.normal(0, 1, shape) * spread).astype(dtype)


def feeds(graph_model: onnx.ModelProto, *, seed: int = 1, size: int = 2, scale: float = 1.0) -> dict[str, np.ndarray]:
    """Draw inputs; dynamic axes get ``size``."""
    rng = np.random.default_rng(seed)
    out = {}
    for item in analyse(graph_model).inputs:
        dtype = np.dtype(item.elem_type)
        shape = tuple(size if length is None else length for length in item.shape)
        draw = rng.normal(0, scale, shape) if dtype.kind == "f" else rng.integers(0, 2, shape)
        out[item.name] = draw.astype(dtype)
    return out


def run(graph_model: onnx.ModelProto, values: Mapping[str, np.ndarray], *, optimise: bool = False) -> list[np.ndarray]:
    """Run a model in ONNX Runtime on the CPU, by default without graph optimisation."""
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    if not optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(graph_model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, dict(values))


def activations(graph_model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Run a model and return every activation."""
    network = analyse(graph_model)
    names = [item.name for item in network.activations if item.producer is not None]
    exposed = onnx.ModelProto()
    exposed.CopyFrom(graph_model)
    listed = {item.name for item in exposed.graph.output}
    exposed.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in listed)
    found = dict(zip([item.name for item in exposed.graph.output], run(exposed, values), strict=True))
    return {**{item.name: values[item.name] for item in network.inputs}, **{name: found[name] for name in names}}


def minmax(graph_model: onnx.ModelProto, values: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Observe amax of every float activation."""
    return {
        name: float(np.abs(array.astype(np.float64)).max())
        for name, array in activations(graph_model, values).items()
        if array.dtype.kind == "f"
    }
