"""Real exports: a Sigmoid with its channel last, a Softmax, two heads, one channel of logits for a grey picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnxruntime
import pytest
from sklearn.metrics import confusion_matrix

from calib.errors import UsageError
from calib.jobs.evaluate import evaluate
from tests.evalsets import make_set

QUICK: dict[str, Any] = {"resamples": 100, "pictures": 0}
PLAIN = {"scale": 1 / 255, "mean": [0.0], "std": [1.0]}
MODELS = {
    "selfie_nhwc_opset11": ({"size": [256, 256], "layout": "nhwc"}, "Sigmoid), class 1 above 0.5"),
    "sinet_softmax_opset12": ({"size": [320, 320]}, "a channel a class (after Softmax)"),
    "unet_small_opset18": ({"size": [224, 224], "colour": "gray"}, "one channel, class 1 above 0"),
    "twinlitenet_opset14": ({"size": [360, 640]}, "a channel a class"),
}


@pytest.mark.parametrize("name", list(MODELS))
def test_the_output_is_read_for_what_it_is(name: str, shared: Path, tmp_path: Path) -> None:
    options, words = MODELS[name]
    data = make_set(tmp_path / "set", classes=2, images=3, size=tuple(options["size"]), preprocess=PLAIN | options)
    path = shared / "cases" / "models" / f"{name}.onnx"
    chosen = {"output_name": "segmentation"} if name.startswith("twin") else {}
    if chosen:
        with pytest.raises(UsageError, match="lanes"):
            evaluate(path, data.manifest, output=tmp_path / "out", **QUICK)
    model = evaluate(path, data.manifest, output=tmp_path / "out", **QUICK, **chosen)["models"][0]
    assert words in model["output"]
    expected = sum(by_hand(path, data, key, options, chosen) for key in data.keys)
    assert (np.array(model["confusion"])[:, :-1] == expected).all()


def by_hand(path: Path, data: Any, key: str, options: dict[str, Any], chosen: dict[str, str]) -> np.ndarray:
    """The pictures have the network's size, so nothing is resized."""
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), settings, providers=["CPUExecutionProvider"])
    pixels = data.pixels(key)
    grey = cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)[..., None]
    values = ((grey if options.get("colour") == "gray" else pixels) * (1 / 255)).astype(np.float32)
    picture = values[None] if options.get("layout") == "nhwc" else values.transpose(2, 0, 1)[None]
    names = [chosen["output_name"]] if chosen else None
    answer = session.run(names, {session.get_inputs()[0].name: picture})[0]
    answer = np.moveaxis(answer, -1, 1)[0] if options.get("layout") == "nhwc" else answer[0]
    above = 0.5 if options.get("layout") == "nhwc" else 0.0
    predicted = answer.argmax(0) if len(answer) == 2 else (answer[0] > above).astype(int)
    label = data.label(key)
    return np.asarray(confusion_matrix(label[label != 255], predicted[label != 255], labels=[0, 1]))
