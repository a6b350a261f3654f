"""torchao PT2E: what its quantizers export is read, its asymmetry told, and the network written anew for TensorRT."""

from __future__ import annotations

import io
import json
import warnings

import numpy as np
import onnx
import pytest

from calib.cli.app import run as main
from calib.stages.qdqread import read_qdq
from calib.stages.qdqrules import tensorrt_findings
from calib.stages.qdqstrip import strip_qdq
from tests.foreign.networks import exported, images, network
from tests.graphs import run

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")


def quantizers() -> dict:
    """The quantizers of the installed torchao, by name: x86 Inductor's and XNNPACK's."""
    with warnings.catch_warnings(action="ignore"):
        pytest.importorskip("torchao", exc_type=ImportError)
        import torchao.quantization.pt2e.quantizer.x86_inductor_quantizer as x86
        from torchao.testing.pt2e._xnnpack_quantizer import XNNPACKQuantizer, get_symmetric_quantization_config
    first = x86.X86InductorQuantizer()
    first.set_global(x86.get_default_x86_inductor_quantization_config())
    second = XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))
    return {"x86": first, "xnnpack": second}


@pytest.fixture(scope="module", params=["x86", "xnnpack"])
def converted(request):
    """A network that torchao quantized, as a module and as an ONNX model."""
    quantizer, batches = quantizers()[request.param], images()
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        prepared = prepare_pt2e(torch.export.export(network(), (batches[0],)).module(), quantizer)
        for item in batches:
            prepared(item)
        module = convert_pt2e(prepared)
        stream = io.BytesIO()
        program = torch.export.export(module, (batches[0],))
        options = {"input_names": ["image"], "output_names": ["logits"], "verbose": False}
        torch.onnx.export(program, (batches[0],), dynamo=True, **options).save(stream)
    return request.param, module, batches, onnx.load_from_string(stream.getvalue())


def test_what_tensorrt_rejects_is_told_with_what_symmetry_costs(converted):
    name, _, _, model = converted
    codes = {item.code for item in tensorrt_findings(model)}
    assert codes == ({"trt_type", "trt_zero_point"} if name == "x86" else {"trt_zero_point"})
    (remark,) = (item for item in read_qdq(model, "ao").remarks if item.code == "asymmetric")
    assert remark.blocks
    assert "1.01 bits coarser" in remark.text  # after a Relu half of the symmetric range is empty


def test_the_float_network_inside_is_the_one_that_was_quantized(converted):
    _, _, batches, model = converted
    found, feed = strip_qdq(model), {"image": batches[0].numpy()}
    assert len(found.restored) == 9
    wanted = run(exported(network(), batches[0]), feed)[0]
    assert np.mean(run(found.model, feed)[0].argmax(1) == wanted.argmax(1)) > 0.98


def test_the_network_for_tensorrt_keeps_every_weight_and_covers_every_range(converted, tmp_path, capsys):
    _, module, batches, model = converted
    source, out = tmp_path / "ao.onnx", tmp_path / "q.onnx"
    onnx.save(model, source)
    assert main(["cache", "convert", str(source), "-o", str(out)]) == 2
    assert "zero point, which TensorRT rejects" in capsys.readouterr().err
    assert main(["cache", "convert", str(source), "-o", str(out), "--partial", "--as-trained", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["layers"]["int8"]) >= 9
    written = onnx.load(out)
    assert tensorrt_findings(written) == ()
    with torch.no_grad():
        wanted = module(batches[0]).numpy()
    found = run(written, {"image": batches[0].numpy()})[0]
    assert np.mean(found.argmax(1) == wanted.argmax(1)) > 0.97  # up to a bit coarser, on a network nobody trained
    weights = {item.name: item.scales for item in read_qdq(model, "ao").weights}
    for item in read_qdq(written, "q").weights:
        np.testing.assert_array_equal(item.scales, weights[item.name])
