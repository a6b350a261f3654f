"""An ONNX network as a module: the same numbers at any size, the right parameters."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch", reason="needs PyTorch")

from calib.core.graph import analyse  # noqa: E402
from calib.core.graph.stored import StoredValues  # noqa: E402
from calib.core.trainable import trainable_constants  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.qat.module import OnnxModule, with_values  # noqa: E402
from calib.errors import ModelError  # noqa: E402

WEIGHTS = """
<ir_version: 8, opset_import: ["" : 17]>
net (float[N,3,H,W] image) => (float[N,4,H,W] logits)
<float[1,3,1,1] mean = {0.5, 0.4, 0.3}, float[1] three = {3.0}, float[1,4,1,1] shift = {1.0, 2.0, 3.0, 4.0},
 float zero = {0.0}, float six = {6.0}>
{
  centred = Sub (image, mean)
  a = Conv (centred, w, b)
  moved = Add (a, three)
  clipped = Clip (moved, zero, six)
  swish = Mul (a, clipped)
  norm = BatchNormalization (swish, scale, bias, average, variance)
  logits = Add (norm, shift)
}
"""


def weighty() -> onnx.ModelProto:
    model = onnx.parser.parse_model(WEIGHTS)
    rng = np.random.default_rng(0)
    values = {"w": rng.normal(size=(4, 3, 1, 1)), "b": rng.normal(size=4), "scale": rng.random(4) + 0.5,
              "bias": rng.normal(size=4), "average": rng.normal(size=4), "variance": rng.random(4) + 0.5}  # fmt: skip
    for name, value in values.items():
        model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return model


def runtime(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def test_weights_are_parameters_and_what_the_network_computes_with_is_not() -> None:
    model = weighty()
    assert trainable_constants(analyse(model), StoredValues(model)) == ("w", "b", "shift")
    assert set(OnnxModule(model).weights.names()) == {"w", "b", "shift"}


def test_the_statistics_of_a_batch_normalisation_stay_as_they_are() -> None:
    module = OnnxModule(weighty()).train()
    before = {name: value.clone() for name, value in module.constants.named_buffers()}
    module(torch.randn(2, 3, 5, 6)).sum().backward()
    assert all(torch.equal(value, before[name]) for name, value in module.constants.named_buffers())
    assert all(parameter.grad is not None for parameter in module.parameters())


def test_changed_weights_go_back_into_the_network() -> None:
    model = weighty()
    module = OnnxModule(model)
    with torch.no_grad():
        module.weights["w"].mul_(2)
    x = np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)
    wanted = runtime(module.float_model(), {"image": x})[0]
    with torch.no_grad():
        np.testing.assert_allclose(module(torch.from_numpy(x)).numpy(), wanted, 1e-5, 1e-5)
    assert not np.allclose(runtime(model, {"image": x})[0], wanted)


def test_a_weight_in_a_constant_node_is_trained_and_written_back() -> None:
    model = weighty()
    stored = next(item for item in model.graph.initializer if item.name == "w")
    node = onnx.helper.make_node("Constant", [], ["w"], value=stored)
    model.graph.initializer.remove(stored)
    model.graph.node.insert(0, node)
    module = OnnxModule(model)
    assert "w" in module.weights
    changed = with_values(model, {"w": np.ones((4, 3, 1, 1), np.float32)})
    assert np.array_equal(StoredValues(changed).value("w"), np.ones((4, 3, 1, 1)))
    assert not np.array_equal(StoredValues(model).value("w"), np.ones((4, 3, 1, 1)))


def test_parameters_of_another_output_ask_for_no_gradient() -> None:
    parsed = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N,2,H,W] image) => (float[N,2,H,W] out, float[N,2,H,W] aux)
        { out = Conv (image, w)  aux = Conv (image, v) }
    """)
    for name in ("w", "v"):
        parsed.graph.initializer.append(numpy_helper.from_array(np.ones((2, 2, 1, 1), np.float32), name))
    module = OnnxModule(parsed, outputs=["out"])
    assert module.weights["w"].requires_grad
    assert not module.weights["v"].requires_grad


def test_the_wrong_number_of_inputs_is_refused() -> None:
    with pytest.raises(ModelError, match=r"expected 1 tensors \(image\), got 2"):
        OnnxModule(weighty())(torch.zeros(1, 3, 2, 2), torch.zeros(1))


def test_state_and_copies_keep_the_numbers() -> None:
    import copy

    module = OnnxModule(weighty())
    twin = copy.deepcopy(module)
    with torch.no_grad():
        module.weights["b"].add_(1)
    x = torch.randn(1, 3, 4, 4)
    assert not torch.equal(module(x), twin(x))
    twin.load_state_dict(module.state_dict())
    assert torch.equal(module(x), twin(x))


@pytest.mark.parametrize("name", ["deeplabv3plus_mnv2", "unetpp_se"])
def test_the_shared_networks_compute_what_onnx_runtime_computes(name: str, shared: Path) -> None:
    model = load_model(shared / "models" / f"{name}.onnx")
    module = OnnxModule(model)
    x = np.random.default_rng(2).normal(size=(1, 3, 352, 480)).astype(np.float32)
    with torch.no_grad():
        given = module(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(given, runtime(model, {"image": x})[0], 1e-3, 2e-4)


def test_real_networks_of_four_exporters_compute_what_onnx_runtime_computes(shared: Path) -> None:
    networks = [path for path in sorted((shared / "cases" / "models").glob("*.onnx")) if "not_a_model" not in path.name]
    checked = [path for path in networks if _agrees(path)]
    assert len(checked) == len(networks) >= 3


def _agrees(path: Path) -> bool:
    """Whether a network runs here; where it does, its numbers are checked."""
    model = load_model(path)
    try:
        module = OnnxModule(model)
    except ModelError as error:
        if error.expected == "an operator that can be trained through here":
            return False
        raise
    feeds = {item.name: _sample(item.shape) for item in module.network.inputs}
    with torch.no_grad():
        answer = module.run(*map(torch.from_numpy, feeds.values()))
    for wanted, output in zip(runtime(model, feeds), module.network.outputs, strict=True):
        np.testing.assert_allclose(answer[output.name].numpy(), wanted, 2e-3, 2e-3, err_msg=path.name)
    return True


def _sample(shape: tuple[int | None, ...] | None) -> np.ndarray:
    lengths = [length or (1, 3, 64, 96)[axis] for axis, length in enumerate(shape or (1, 3, 64, 96))]
    return np.random.default_rng(0).normal(size=lengths).astype(np.float32)
