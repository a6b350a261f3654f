"""Batch normalisations that an exporter left behind convolutions."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.stages.foldnorm import fold_norms


def network(
    kind: str = "ConvTranspose", group: int = 1, bias: bool = True, reader: str = "", shared: bool = False
) -> onnx.ModelProto:
    """A convolution of 4 to 6 channels with a batch normalisation behind it."""
    rng = np.random.default_rng(7)
    shape = (4, 6 // group, 2, 3) if kind == "ConvTranspose" else (6, 4 // group, 2, 3)
    constants: dict[str, Any] = {"w": rng.normal(size=shape), "b": rng.normal(size=6)}
    constants.update(
        gamma=rng.normal(size=6), beta=rng.normal(size=6), mean=rng.normal(size=6), var=rng.random(6) + 0.1
    )
    nodes = [
        helper.make_node(kind, ["x", "w", "b"] if bias else ["x", "w"], ["y"], "layer", group=group),
        helper.make_node("BatchNormalization", ["y", "gamma", "beta", "mean", "var"], ["z"], "norm", epsilon=1e-3),
        helper.make_node("Relu", ["z"], ["out"]),
    ]
    outputs = ["out"]
    if reader:
        nodes.append(helper.make_node("Sigmoid", [reader], ["more"]))
        outputs.append("more")
    if shared:
        nodes.append(helper.make_node(kind, ["x", "w"], ["again"], "second", group=group))
        outputs.append("again")
    rank = {"out": 4, "again": 4, "more": 1 if reader == "beta" else 4}
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4, 5, 6])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank[name]) for name in outputs],
        [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if not bias:
        del model.graph.initializer[1]
    return model


def run(model: onnx.ModelProto) -> list[np.ndarray[Any, Any]]:
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).normal(size=(2, 4, 5, 6)).astype(np.float32)
    answers: list[np.ndarray[Any, Any]] = session.run(None, {"x": x})
    return answers


@pytest.mark.parametrize("kind", ["Conv", "ConvTranspose"])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [True, False])
def test_the_folded_network_computes_the_same(kind: str, group: int, bias: bool) -> None:
    model = network(kind, group, bias)
    before = run(model)
    assert fold_norms(model) == ("norm",)
    assert [node.op_type for node in model.graph.node] == [kind, "Relu"]
    assert {item.name for item in model.graph.initializer} == {"w", "w.folded_bias"}
    np.testing.assert_allclose(run(model)[0], before[0], rtol=1e-4, atol=1e-5)


def test_a_weight_that_two_layers_read_becomes_two() -> None:
    model = network(shared=True)
    before = run(model)
    assert fold_norms(model) == ("norm",)
    assert {item.name for item in model.graph.initializer} == {"w", "w.0", "w.0.folded_bias"}
    for one, other in zip(run(model), before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_sum_that_something_else_reads_stays() -> None:
    model = network(reader="y")
    before = model.SerializeToString()
    assert fold_norms(model) == ()
    assert model.SerializeToString() == before


def test_a_constant_that_something_else_reads_is_kept() -> None:
    model = network(reader="beta")
    before = run(model)
    assert fold_norms(model) == ("norm",)
    assert "beta" in {item.name for item in model.graph.initializer}
    for one, other in zip(run(model), before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_a_normalisation_in_training_mode_stays() -> None:
    model = network()
    model.graph.node[1].attribute.append(helper.make_attribute("training_mode", 1))
    assert fold_norms(model) == ()
