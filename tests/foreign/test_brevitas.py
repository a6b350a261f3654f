"""Brevitas: QCDQ and QONNX exports of every bit width and rounding are read, or refused by what INT8 cannot hold."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest

from calib.cli.app import run as main
from calib.edges.models import load_model
from calib.stages.qdqread import read_qdq
from calib.stages.qdqrules import tensorrt_findings
from tests.graphs import run

torch = pytest.importorskip("torch")
with warnings.catch_warnings(action="ignore"):
    pytest.importorskip("brevitas", exc_type=ImportError)
    pytest.importorskip("onnxoptimizer")
    pytest.importorskip("onnxscript")
pytestmark = pytest.mark.filterwarnings("ignore")


def trained(bits: int = 8, *, signed: bool = True):
    """A small network with Brevitas' quantizers, calibrated by a few training passes."""
    import brevitas.nn as qnn
    from brevitas.quant import Int8ActPerTensorFloat, Int8WeightPerChannelFloat, Uint8ActPerTensorFloat
    from torch import nn

    after = Int8ActPerTensorFloat if signed else Uint8ActPerTensorFloat
    options = {"weight_quant": Int8WeightPerChannelFloat, "weight_bit_width": bits, "padding": 1}
    torch.manual_seed(0)
    made = nn.Sequential(
        qnn.QuantIdentity(act_quant=Int8ActPerTensorFloat, bit_width=bits),
        qnn.QuantConv2d(3, 8, 3, **options),
        nn.BatchNorm2d(8),
        qnn.QuantReLU(act_quant=after, bit_width=bits),
        qnn.QuantConv2d(8, 8, 3, **options),
        qnn.QuantReLU(act_quant=after, bit_width=bits),
        qnn.QuantConv2d(8, 4, 3, **options),
    )
    made.train()
    for _ in range(4):
        made(torch.randn(4, 3, 16, 16))
    return made.eval()


def export(module, path, form: str) -> onnx.ModelProto:
    from brevitas.export import export_onnx_qcdq, export_qonnx

    with warnings.catch_warnings(action="ignore"), torch.no_grad():
        writer = export_onnx_qcdq if form == "qcdq" else export_qonnx
        writer(module, torch.randn(1, 3, 16, 16), str(path), input_names=["image"], output_names=["logits"])
    return load_model(path)


@pytest.mark.parametrize("form", ["qcdq", "qonnx"])
def test_signed_eight_bit_networks_become_ones_for_tensorrt(tmp_path, form):
    module, source, out = trained(), tmp_path / "b.onnx", tmp_path / "q.onnx"
    table = read_qdq(export(module, source, form), "b")
    assert [item for item in table.remarks if item.blocks] == []
    scale = float(module[0].act_quant.scale())
    assert table.ranges["image"].scale == pytest.approx(scale, rel=1e-6)
    assert main(["cache", "convert", str(source), "-o", str(out), "--as-trained"]) == 0
    written = onnx.load(out)
    assert tensorrt_findings(written) == ()
    image = torch.randn(1, 3, 16, 16, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        wanted = module(image)
    wanted = getattr(wanted, "value", wanted).numpy()
    found = run(written, {"image": image.numpy()})[0]
    assert np.mean(found.argmax(1) == wanted.argmax(1)) >= 0.999


@pytest.mark.parametrize("form", ["qcdq", "qonnx"])
def test_unsigned_activations_and_fewer_bits_are_told(tmp_path, form):
    unsigned = read_qdq(export(trained(signed=False), tmp_path / "u.onnx", form), "b")
    (remark,) = (item for item in unsigned.remarks if item.blocks)
    assert remark.code == "asymmetric"
    assert "1.01 bits coarser" in remark.text
    narrow = read_qdq(export(trained(4), tmp_path / "n.onnx", form), "b")
    assert {item.code for item in narrow.remarks if item.blocks} == {"narrow_bits"}


def test_tensorrt_findings_of_both_forms(tmp_path):
    assert {item.code for item in tensorrt_findings(export(trained(), tmp_path / "a.onnx", "qonnx"))} == {
        "trt_operator"
    }
    assert {item.code for item in tensorrt_findings(export(trained(), tmp_path / "b.onnx", "qcdq"))} == {"trt_between"}
