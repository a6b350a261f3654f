"""ModelOpt: what it calibrates, saves and trains converts to the ranges it reports and to the output it computes."""

from __future__ import annotations

import copy
import json
import warnings

import numpy as np
import onnx
import pytest

from calib.cli.app import run as main
from calib.core.graph import analyse
from calib.edges import qat_modelopt
from calib.edges.tables import load_table
from calib.errors import MissingLibraryError, ModelError, StatisticsError
from calib.stages.modules import map_modules, to_tensors
from calib.stages.qdqread import read_qdq
from calib.stages.trained import planned_layers, quantize_as_trained
from tests.foreign.networks import exported, images, network
from tests.graphs import run as run_onnx

pytest.importorskip("torch")
pytest.importorskip("onnxscript")
try:
    mtq = qat_modelopt.require_modelopt()
except MissingLibraryError as reason:
    pytest.skip(str(reason.got), allow_module_level=True)

import torch

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def floating(tmp_path_factory):
    """The float network, its calibration images and its export."""
    module, folder = network(), tmp_path_factory.mktemp("modelopt")
    path = folder / "float.onnx"
    onnx.save(exported(module, images(1)[0]), path)
    return module, images(), path


@pytest.fixture(scope="module")
def calibrated(floating):
    """What ModelOpt's own default makes of it."""
    module, batches, _ = floating
    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        return mtq.quantize(copy.deepcopy(module), mtq.INT8_DEFAULT_CFG, lambda net: [net(item) for item in batches])


def reported(module) -> dict[str, np.ndarray]:
    """amax of every quantizer in force, as ModelOpt reports it."""
    held = {name: item for name, item in module.named_modules() if hasattr(item, "_num_bits") and item.is_enabled}
    return {name: item.amax.detach().numpy() for name, item in held.items()}


def agreement(made: onnx.ModelProto, module, batches) -> float:
    """Share of pixels on which ONNX Runtime and torch choose the same class."""
    with torch.no_grad():
        wanted = [module(item).numpy() for item in batches]
    found = [run_onnx(made, {"image": item.numpy()})[0] for item in batches]
    return float(np.mean([np.mean(a.argmax(1) == b.argmax(1)) for a, b in zip(wanted, found, strict=True)]))


@pytest.mark.parametrize("whole", [False, True])
def test_saved_state_dicts_convert_to_exactly_the_ranges_that_modelopt_reports(calibrated, tmp_path, whole):
    path = tmp_path / "state.pt"
    if whole:
        import modelopt.torch.opt as mto

        mto.save(calibrated, path)
    else:
        torch.save(
            {"epoch": 3, "model": {f"module.{key}": value for key, value in calibrated.state_dict().items()}}, path
        )
    table, wanted = load_table(str(path)), reported(calibrated)
    found = {item.name.removeprefix("module."): np.float32(item.amax) for item in table}
    weights = {item.name.removeprefix("module."): item for item in table.weights}
    assert set(found) | set(weights) == set(wanted)
    for name, amax in wanted.items():
        if name in found:
            assert found[name] == amax
        else:
            np.testing.assert_array_equal(weights[name].scales, np.float32(np.float64(amax.ravel()) / 127))
            assert weights[name].follows_weight


def test_a_state_dict_becomes_a_cache_and_a_network_with_these_ranges(calibrated, floating, tmp_path, capsys):
    _, _, path = floating
    torch.save(calibrated.state_dict(), tmp_path / "s.pt")
    out = tmp_path / "q.onnx"
    assert main(["cache", "convert", str(tmp_path / "s.pt"), "-o", str(out), "--model", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["unquantized"] == []
    said = "10 weights of the network are the file's: 5 with their batch normalisation folded, 5 as they are"
    assert said in document["notes"]
    model = onnx.load(path)
    named, lost = to_tensors(load_table(str(tmp_path / "s.pt")), map_modules(model, analyse(model)))
    assert lost == ()
    ranges = {item.name: item.scale for item in read_qdq(onnx.load(out), "q")}
    assert ranges
    assert all(scale == named.ranges[name].exact_scale for name, scale in ranges.items())
    assert (
        main(["cache", "convert", str(tmp_path / "s.pt"), "-o", str(tmp_path / "c.cache"), "--model", str(path)]) == 0
    )


def test_the_network_as_trained_computes_what_modelopts_fake_quantization_does(calibrated, floating, tmp_path):
    _, batches, path = floating
    torch.save(calibrated.state_dict(), tmp_path / "s.pt")
    out = tmp_path / "q.onnx"
    flags = ["--model", str(path), "--as-trained"]
    assert main(["cache", "convert", str(tmp_path / "s.pt"), "-o", str(out), *flags]) == 0
    assert agreement(onnx.load(out), calibrated, [*batches, *images(4, seed=7)]) >= 0.999


def test_the_network_that_modelopt_exports_converts_without_the_float_one(calibrated, floating, tmp_path, capsys):
    _, batches, _ = floating
    source, out = tmp_path / "m.onnx", tmp_path / "q.onnx"
    onnx.save(exported(calibrated, batches[0], dynamo=False, opset=17), source)
    assert main(["cache", "convert", str(source), "-o", str(out), "--as-trained", "--json"]) == 0
    assert any("was taken out of the file" in line for line in json.loads(capsys.readouterr().out)["notes"])
    assert agreement(onnx.load(out), calibrated, batches) >= 0.999
    scales = [{item.name: item.scale for item in read_qdq(onnx.load(path), "m")} for path in (source, out)]
    assert all(scales[0][name] == scale for name, scale in scales[1].items())


def test_layers_of_the_placement_are_quantized_trained_and_exported(floating):
    module, batches, path = floating
    layers = planned_layers(onnx.load(path))
    assert set(layers) == {"stem.0", "up", "fuse"} | {f"layer1.{i}.conv{j}" for i in (0, 1) for j in (1, 2)}
    quantized = qat_modelopt.prepare(copy.deepcopy(module), layers, batches=batches)
    assert {name.rpartition(".")[0] for name in reported(quantized)} == set(layers)
    optimizer = torch.optim.SGD([item for item in quantized.parameters() if item.requires_grad], 0.05)
    for item in batches:
        optimizer.zero_grad()
        quantized(item).square().mean().backward()
        optimizer.step()
    plain = network(seed=5)
    plain.load_state_dict(qat_modelopt.float_state(quantized))
    model = exported(plain, batches[0])
    table = qat_modelopt.ranges_of(quantized)
    assert {item.name: np.float32(item.amax) for item in table} == {
        name: amax for name, amax in reported(quantized).items() if "input" in name
    }
    result = quantize_as_trained(model, table)
    assert result.given_weights  # trained away from the range that was calibrated
    assert agreement(result.model, quantized, batches) >= 0.999
    with pytest.raises(Exception, match=r"differs? from the network's weights"):
        quantize_as_trained(onnx.load(path), table)


def test_ranges_of_a_build_replace_calibration_and_a_training_resumes(floating):
    module, batches, path = floating
    layers = planned_layers(onnx.load(path))
    first = qat_modelopt.prepare(copy.deepcopy(module), layers, batches=batches)
    table = qat_modelopt.ranges_of(first)
    second = qat_modelopt.prepare(copy.deepcopy(module), layers, ranges=table)
    np.testing.assert_equal(reported(second), reported(first))
    third = qat_modelopt.resume(network(seed=9), layers, first.state_dict())
    np.testing.assert_equal(reported(third), reported(first))
    with torch.no_grad():
        assert torch.equal(third.eval()(batches[0]), first.eval()(batches[0]))


def test_what_cannot_be_quantized_is_said(floating):
    module, batches, _ = floating
    with pytest.raises(ModelError, match=r"stem\.7"):
        qat_modelopt.prepare(copy.deepcopy(module), ["stem.7"], batches=batches)
    with pytest.raises(StatisticsError, match=r"fuse\.input_quantizer"):
        qat_modelopt.prepare(copy.deepcopy(module), ["fuse"])
    with pytest.raises(ModelError, match=r"stem\.2"):
        qat_modelopt.prepare(copy.deepcopy(module), ["fuse", "stem.2"], batches=batches)


def test_disabled_quantizers_have_no_range(calibrated, tmp_path):
    import modelopt.torch.opt as mto

    made = copy.deepcopy(calibrated)
    made.head.input_quantizer.disable()
    mto.save(made, tmp_path / "d.pt")
    table = load_table(str(tmp_path / "d.pt"))
    assert "head.input_quantizer" not in table.ranges
    assert ("disabled", ("head.input_quantizer",)) in {(item.code, item.names) for item in table.remarks}
