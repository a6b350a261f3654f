"""Networks that cannot be calibrated are refused before any work, by what is in them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.graph import analyse
from calib.errors import ModelError
from calib.stages.fitness import refuse_unfit
from tests.builds import parsed, two_convolutions

NORM = {name: np.ones(8, np.float32) for name in ("scale", "bias", "mean", "variance")}
CONV = "a = Conv <pads = [1,1,1,1]> (image, w0)\n"
BATCH_NORM = "BatchNormalization {} (a, scale, bias, mean, variance)\n"
UNFIT = {
    "quantized": (CONV + "q = QuantizeLinear (a, s, z)\n b = DequantizeLinear (q, s, z)\n logits = Conv (b, w2)",
                  {"s": np.float32(0.1), "z": np.int8(0)}, 17, "QuantizeLinear"),
    "training norm": (CONV + "b, m, v = " + BATCH_NORM.format("<training_mode = 1>") + "logits = Conv (b, w2)",
                      NORM, 17, "training mode"),
    "old training norm": (CONV + "b, m, v = " + BATCH_NORM.format("") + "logits = Conv (b, w2)",
                          NORM, 9, "training mode"),
    "training dropout": (CONV + "b = Dropout (a, r, t)\n logits = Conv (b, w2)",
                         {"r": np.float32(0.5), "t": np.array(True)}, 13, "training mode"),
    "noise": (CONV + "n = RandomNormalLike (a)\n b = Add (a, n)\n logits = Conv (b, w2)", {}, 17, "RandomNormalLike"),
    "nothing to observe": ("s = Shape (image)\n n = Cast <to = 7> (s)\n logits = Identity (n)", {}, 17, "no"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNFIT)
def test_unfit_networks_are_named(name: str) -> None:
    body, weights, opset, words = UNFIT[name]
    outputs = "int64[4] logits" if name == "nothing to observe" else "float[N,3,16,16] logits"
    model = parsed(body, weights, opset=opset, outputs=outputs)
    with pytest.raises(ModelError) as caught:
        refuse_unfit(model, analyse(model), "net.onnx")
    assert words in str(caught.value)
    assert caught.value.remedy


def test_a_quantized_function_is_found() -> None:
    function = """
        <domain: "local", opset_import: ["" : 17]>
        Rounded (x) => (y)
        {
            s = Constant <value = float {0.1}> ()
            z = Constant <value = int8 {0}> ()
            q = QuantizeLinear (x, s, z)
            y = DequantizeLinear (q, s, z)
        }
    """
    model = parsed(CONV + "b = local.Rounded (a)\n logits = Conv (b, w2)", after=function)
    with pytest.raises(ModelError, match="QuantizeLinear"):
        refuse_unfit(model, analyse(model), "net.onnx")


@pytest.mark.parametrize(
    "model",
    [
        two_convolutions(),
        parsed(CONV + "b = " + BATCH_NORM.format("") + "logits = Conv (b, w2)", NORM),
        parsed(CONV + "b = Dropout (a)\n logits = Conv (b, w2)"),
        parsed(CONV + "b = Dropout (a, r, t)\n logits = Conv (b, w2)", {"r": np.float32(0.5), "t": np.array(False)}),
    ],
    ids=["plain", "inference norm", "dropout", "inference dropout"],
)
def test_networks_for_inference_pass(model: onnx.ModelProto) -> None:
    refuse_unfit(model, analyse(model), "net.onnx")
    assert analyse(model).nodes
