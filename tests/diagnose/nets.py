"""Small networks written down node by node, and running them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import helper, numpy_helper

from calib.stages.diagnose.examine import Examination, examine
from calib.stages.diagnose.onnxtrace import OnnxTrace, trace_onnx
from tests.diagnose.faults import RUNTIME


def net(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int],
    weights: Mapping[str, np.ndarray] | None = None,
    output: str = "y",
    opset: int = 17,
) -> onnx.ModelProto:
    """A network from ``x`` of this shape to one output."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, list(shape))],
        [helper.make_empty_tensor_value_info(output)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.graph.output[0].CopyFrom(graph.output[0])
    return model


def node(kind: str, inputs: Sequence[str], output: str, **attributes: object) -> onnx.NodeProto:
    return helper.make_node(kind, list(inputs), [output], name=f"{kind}_{output}", **attributes)


def traced(model: onnx.ModelProto, x: np.ndarray) -> OnnxTrace:
    return trace_onnx(model, {"x": x}, RUNTIME, "net")


def examined(reference: onnx.ModelProto, candidate: onnx.ModelProto, x: np.ndarray) -> Examination:
    return examine(traced(reference, x), candidate, [{"x": x}], RUNTIME)


def noise(*shape: int, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, shape).astype(np.float32)
