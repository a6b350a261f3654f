"""The exported Q/DQ network: every rule of TensorRT's, ONNX Runtime against PyTorch, cache against network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

torch = pytest.importorskip("torch", reason="needs PyTorch")

import calib.qat  # noqa: E402
from calib.core.graph import analyse  # noqa: E402
from calib.core.trtcache import parse  # noqa: E402
from calib.edges.models import load_model  # noqa: E402
from calib.edges.tables import load_table  # noqa: E402
from calib.jobs.qat.artifacts import make_cache  # noqa: E402
from calib.jobs.qat.preparing import quantize_trained  # noqa: E402
from calib.stages.qdq import activation_ranges, quantize_model  # noqa: E402
from calib.stages.qdqread import read_qdq  # noqa: E402
from tests.evalsets import Evalset, prepare  # noqa: E402

COMPUTE = {"Conv", "ConvTranspose", "Gemm", "MatMul"}


def trained(exported: Path, build: Path, steps: int = 5, **options: Any) -> Any:
    """A prepared network after a few steps that move weights and scales."""
    module = calib.qat.prepare(exported, build, **options).train()
    optimizer = torch.optim.Adam(module.parameters(), 2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        optimizer.zero_grad()
        module(torch.randn(2, 3, 32, 48, generator=generator)).square().mean().backward()
        optimizer.step()
    return module.eval()


@pytest.fixture(scope="module")
def module(exported: Path, build: Path) -> Any:
    return trained(exported, build)


@pytest.fixture(scope="module")
def written(module: Any, tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    path = tmp_path_factory.mktemp("export") / "net.qdq.onnx"
    calib.qat.export(module, path)
    return load_model(path)


def constants(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {item.name: numpy_helper.to_array(item) for item in model.graph.initializer}


def pairs(model: onnx.ModelProto) -> list[tuple[onnx.NodeProto, onnx.NodeProto]]:
    """QuantizeLinear with its DequantizeLinear."""
    readers = {node.input[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    return [(node, readers[node.output[0]]) for node in model.graph.node if node.op_type == "QuantizeLinear"]


def dequantized(model: onnx.ModelProto) -> set[str]:
    return {node.output[0] for node in model.graph.node if node.op_type == "DequantizeLinear"}


def layers(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for node in model.graph.node if node.op_type in COMPUTE]


def test_only_int8_with_zero_point_zero(written: onnx.ModelProto) -> None:
    known = constants(written)
    for quantize, dequantize in pairs(written):
        for node in (quantize, dequantize):
            zero = known[node.input[2]]
            assert zero.dtype == np.int8
            assert not zero.any()
            assert node.input[1] == quantize.input[1]


def test_every_scale_is_finite_and_positive(written: onnx.ModelProto) -> None:
    known = constants(written)
    for quantize, _ in pairs(written):
        scale = known[quantize.input[1]]
        assert scale.dtype == np.float32
        assert np.isfinite(scale).all()
        assert (scale > 0).all()


def test_activations_have_one_scale_and_convolution_weights_one_a_channel_along_a_written_axis(
    written: onnx.ModelProto,
) -> None:
    known = constants(written)
    for quantize, dequantize in pairs(written):
        scale = known[quantize.input[1]]
        axes = [
            attribute.i for node in (quantize, dequantize) for attribute in node.attribute if attribute.name == "axis"
        ]
        reader = next(node for node in written.graph.node if dequantize.output[0] in node.input)
        if quantize.input[0] in known and reader.op_type == "Conv":
            assert scale.shape == (known[quantize.input[0]].shape[0],)
            assert axes == [0, 0]
        else:
            assert scale.shape == ()
            assert axes == []


def test_both_operands_of_every_quantized_layer_have_a_pair_and_the_bias_has_none(written: onnx.ModelProto) -> None:
    restored = dequantized(written)
    quantized = [node for node in layers(written) if set(node.input[:2]) & restored]
    assert len(quantized) >= 5
    for node in quantized:
        assert set(node.input[:2]) <= restored
        assert not set(node.input[2:]) & restored
        assert all(constants(written)[name].dtype == np.float32 for name in node.input[2:])


def test_logits_and_gates_stay_float(written: onnx.ModelProto) -> None:
    restored = dequantized(written)
    makers = {name: node for node in written.graph.node for name in node.output}
    assert not set(makers["logits"].input) & restored
    sigmoid = next(node for node in written.graph.node if node.op_type == "Sigmoid")
    assert not set(makers[sigmoid.input[0]].input) & restored
    gate = next(node for node in written.graph.node if sigmoid.output[0] in node.input)
    assert gate.op_type == "Mul"
    assert not set(gate.input) & restored


def test_no_output_is_quantized_and_nothing_stands_between_a_convolution_and_its_activation(
    written: onnx.ModelProto,
) -> None:
    outputs = {item.name for item in written.graph.output}
    makers = {name: node for node in written.graph.node for name in node.output}
    for quantize, dequantize in pairs(written):
        assert dequantize.output[0] not in outputs
        maker = makers.get(quantize.input[0])
        if maker is not None and maker.op_type == "Conv":
            readers = {node.op_type for node in written.graph.node if maker.output[0] in node.input}
            assert "Relu" not in readers


def test_the_shortcut_of_the_residual_addition_has_a_pair_and_the_other_side_has_none(written: onnx.ModelProto) -> None:
    restored = dequantized(written)
    addition = next(node for node in written.graph.node if node.op_type == "Add")
    assert len(set(addition.input) & restored) == 1
    other = next(name for name in addition.input if name not in restored)
    makers = {name: node for node in written.graph.node for name in node.output}
    assert makers[other].op_type == "Conv"


def test_the_transposed_convolution_has_one_scale_a_weight(written: onnx.ModelProto) -> None:
    node = next(node for node in written.graph.node if node.op_type == "ConvTranspose")
    maker = next(item for item in written.graph.node if item.output[0] == node.input[1])
    assert constants(written)[maker.input[1]].shape == ()


def test_pairs_stand_behind_the_resize_and_its_input_has_none(written: onnx.ModelProto) -> None:
    resize = next(node for node in written.graph.node if node.op_type == "Resize")
    assert resize.input[0] not in dequantized(written)


def test_the_inputs_of_the_concatenation_keep_scales_of_their_own(written: onnx.ModelProto, module: Any) -> None:
    concat = [node for node in written.graph.node if node.op_type == "Concat"][-1]  # those before compute a shape
    assert not set(concat.input) & dequantized(written)
    assert concat.output[0] in activation_ranges(written)


def test_the_model_passes_onnx_checker(written: onnx.ModelProto) -> None:
    onnx.checker.check_model(written, full_check=True)


def test_training_quantizes_exactly_where_the_export_does(module: Any, written: onnx.ModelProto) -> None:
    assert {pair.tensor for pair in module.plan.activations} == set(activation_ranges(written))
    read = {item.name for item in read_qdq(written, "net").weights}
    assert {pair.tensor for pair in module.plan.weights} == read


def test_ptq_of_the_same_network_has_its_pairs_at_the_same_places(
    exported: Path, module: Any, written: onnx.ModelProto
) -> None:
    ptq = quantize_model(load_model(exported), module.start_amax, "trt11").model
    assert [(n.op_type, list(n.input), list(n.output)) for n in ptq.graph.node] == [
        (n.op_type, list(n.input), list(n.output)) for n in written.graph.node
    ]


def test_onnx_runtime_computes_what_fake_quantization_computes(
    module: Any, written: onnx.ModelProto, data: Evalset
) -> None:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(written.SerializeToString(), options, providers=["CPUExecutionProvider"])
    agreeing, pixels = 0, 0
    for key in data.keys:
        x = prepare(data.pixels(key))
        wanted = session.run(None, {"image": x})[0].argmax(1)
        with torch.no_grad():
            given = module(torch.from_numpy(x)).numpy().argmax(1)
        agreeing, pixels = agreeing + int((given == wanted).sum()), pixels + wanted.size
    assert agreeing / pixels >= 0.999


def test_scales_of_the_cache_are_those_of_the_network_and_the_round_trip_is_exact(
    exported: Path, module: Any, written: onnx.ModelProto, tmp_path: Path
) -> None:
    origin = load_model(exported)
    _, amax = quantize_trained(origin, module, module.start_amax, module.target, module.options)
    cache, coverage = make_cache(analyse(origin), amax, "10.14.1", "EntropyCalibration2")
    assert coverage.complete
    scales = parse(cache).scales
    known = constants(written)
    compared = 0
    for quantize, _ in pairs(written):
        if quantize.input[0] in scales:
            stored = known[quantize.input[1]]
            assert np.float32(scales[quantize.input[0]]).tobytes() == stored.tobytes()
            compared += 1
    assert compared == len(module.plan.activations)
    (tmp_path / "x.cache").write_bytes(cache)
    table = load_table(str(tmp_path / "x.cache"))
    again = quantize_model(module.float_model(), {item.name: item.amax for item in table}, module.target).model
    assert activation_ranges(again) == activation_ranges(written)
    assert again.SerializeToString(deterministic=True) == written.SerializeToString(deterministic=True)


def test_learnt_weight_scales_are_written_as_learnt(exported: Path, build: Path, tmp_path: Path) -> None:
    module = trained(exported, build, learn_weight_scales=True)
    result = calib.qat.export(module, tmp_path / "net.qdq.onnx")
    assert set(result.given_weights) == {pair.tensor for pair in module.plan.weights}
    read = {item.name: item for item in read_qdq(result.model, "net").weights}
    for name, wanted in module.weight_ranges().items():
        np.testing.assert_array_equal(read[name].scales.astype(np.float32), wanted.scales.astype(np.float32))
    assert any(not item.follows_weight for item in read.values())


def test_a_network_that_starts_at_opset_11_is_trained_as_it_will_be_written(build: Path, exported: Path) -> None:
    """The writer raises the operator set for scales a channel; training does the same."""
    parsed = onnx.parser.parse_model("""
        <ir_version: 6, opset_import: ["" : 11]>
        net (float[N,3,16,16] image) => (float[N,4,16,16] logits)
        { a = Conv (image, w)  b = Relu (a)  logits = Conv (b, v) }
    """)
    rng = np.random.default_rng(0)
    for name, shape in (("w", (6, 3, 1, 1)), ("v", (4, 6, 1, 1))):
        parsed.graph.initializer.append(numpy_helper.from_array(rng.normal(size=shape).astype(np.float32), name))
    module = calib.qat.prepare(parsed, {"image": 3.0, "a": 5.0, "b": 5.0, "logits": 9.0})
    assert module.plan.per_channel
    assert module.network.opset >= 13
