"""What other quantizers write: lint names what TensorRT refuses of it, and leaves it alone for ONNX Runtime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from calib.core.lint.engine import lint_model
from tests.graphs import model, node, weight


class Reader:
    """Three images of noise."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        self.images = iter([{"x": rng.normal(size=(1, 3, 16, 16)).astype(np.float32)} for _ in range(3)])

    def get_next(self):
        return next(self.images, None)


def network() -> onnx.ModelProto:
    nodes = [
        node("Conv", "x,w1,b1", "a", pads=[1, 1, 1, 1]),
        node("Relu", "a", "r"),
        node("Conv", "r,w2,b2", "c", pads=[1, 1, 1, 1]),
        node("Add", "c,r", "s"),
        node("Relu", "s", "t"),
        node("Conv", "t,w3,b3", "y"),
    ]
    weights = {"w1": weight(8, 3, 3, 3), "w2": weight(8, 8, 3, 3), "w3": weight(5, 8, 1, 1)}
    biases = {f"b{i}": np.arange(n, dtype=np.float32) for i, n in ((1, 8), (2, 8), (3, 5))}
    return model(nodes, {"x": (1, 3, 16, 16)}, ["y"], {**weights, **biases})


def quantized(folder: Path, **settings) -> onnx.ModelProto:
    ort_quantization = pytest.importorskip("onnxruntime.quantization")
    source, target = folder / "float.onnx", folder / "int8.onnx"
    onnx.save(network(), source)
    ort_quantization.quantize_static(source, target, Reader(), **settings)
    return onnx.load(target)


def rules(graph: onnx.ModelProto, target: str, severity: str) -> set[str]:
    return {item.rule.id for item in lint_model(graph, targets=(target,)) if item.severity == severity}


@pytest.mark.filterwarnings("ignore")
def test_onnx_runtimes_defaults_are_refused_by_tensorrt_alone(tmp_path: Path) -> None:
    ort_quantization = pytest.importorskip("onnxruntime.quantization")
    graph = quantized(tmp_path, activation_type=ort_quantization.QuantType.QUInt8)
    for target in ("trt10", "trt11"):
        assert {"qdq-type", "qdq-zero-point", "qdq-bias"} <= rules(graph, target, "error")
    assert rules(graph, "ort", "error") == set()
    assert {"qdq-logits", "qdq-output"} <= rules(graph, "ort", "warning")


@pytest.mark.filterwarnings("ignore")
def test_symmetric_int8_without_bias_is_taken(tmp_path: Path) -> None:
    options = {"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False}
    graph = quantized(tmp_path, per_channel=True, extra_options=options)
    assert rules(graph, "trt11", "error") == set()
