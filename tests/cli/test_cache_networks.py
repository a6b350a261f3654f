"""``calib cache convert`` on networks of every operator set and float type: cache to Q/DQ, back, and to Q/DQ again."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from calib.cli.app import make_app, run
from calib.core.formats.registry import read_table
from calib.core.trtcache import parse, render
from calib.edges.models import load_model
from calib.edges.runners.ort import OrtRunner

AMAX = {
    "image": 2.64, "a": 9.5, "b": 7.25, "c": 7.25, "p": 7.25, "padded": 7.25, "u": 30.0, "v": 21.0, "cat": 30.0,
    "gain": 1.0, "g": 33.0, "logits": 12.5,
}  # fmt: skip
OPSETS = [7, 9, 10, 11, 12, 13, 15, 17, 18, 19, 20, 21, 22, 23]
NORMAL = ("bn.scale", "bn.shift", "bn.mean", "bn.variance")
TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}


def calib(*arguments: object) -> int:
    return run(["cache", *map(str, arguments)], make_app((), (("cache", "calib.cli.cache"),)))


def network(opset: int = 17, kind: str = "float32", *, two: bool = False, dynamic: bool = True) -> onnx.ModelProto:
    """Convolution, batch normalisation, pooling, padding, two transposed convolutions, a skip, a head; maybe a gain."""
    rng, dtype = np.random.default_rng(0), np.dtype(TYPES[kind])
    elem = helper.np_dtype_to_tensor_dtype(dtype)
    shapes = {"stem": (8, 3, 3, 3), "up": (8, 8, 2, 2), "side": (8, 8, 3, 3), "head": (4, 16, 1, 1)}
    weights = {name: rng.normal(0, 0.3, shape) for name, shape in shapes.items()}
    weights |= {name: rng.random(8) + 0.5 for name in NORMAL}
    stored = [numpy_helper.from_array(value.astype(dtype), name) for name, value in weights.items()]
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64)
    stored += [numpy_helper.from_array(pads, "pads")] if opset > 10 else []
    pad = helper.make_node("Pad", ["c", "pads"] if opset > 10 else ["c"], ["padded"])
    pad.attribute.extend([helper.make_attribute("pads", pads.tolist())] if opset < 11 else [])
    nodes = [
        helper.make_node("Conv", ["image", "stem"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("BatchNormalization", ["a", *NORMAL], ["b"]),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("MaxPool", ["c"], ["p"], kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[1, 1]),
        pad,
        helper.make_node("ConvTranspose", ["p", "up"], ["u"], strides=[2, 2]),
        helper.make_node("ConvTranspose", ["padded", "side"], ["v"], strides=[2, 2], pads=[2, 2, 3, 3]),
        helper.make_node("Concat", ["u", "v"], ["cat"], axis=1),
        *([helper.make_node("Mul", ["cat", "gain"], ["g"])] if two else []),
        helper.make_node("Conv", ["g" if two else "cat", "head"], ["logits"]),
    ]
    free = ("N", "H", "W") if dynamic else (1, 16, 16)
    value = helper.make_tensor_value_info
    inputs = [value("image", elem, [free[0], 3, *free[1:]])] + (
        [value("gain", elem, [free[0], 1, 1, 1])] if two else []
    )
    graph = helper.make_graph(nodes, "g", inputs, [value("logits", elem, [free[0], 4, *free[1:]])], stored)
    imports = [helper.make_opsetid("", opset)]
    made = helper.make_model(graph, opset_imports=imports, ir_version=helper.find_min_ir_version_for(imports))
    return onnx.shape_inference.infer_shapes(made)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the cache of the network, two entries too many for the one without gain."""
    entries = [(name, amax / 127) for name, amax in AMAX.items()]
    (tmp_path / "two.cache").write_bytes(render(entries, "8.6.1").render())
    one = [(name, scale) for name, scale in entries if name not in {"gain", "g"}]
    (tmp_path / "one.cache").write_bytes(render(one, "8.6.1").render())
    return tmp_path


def there_and_back(
    place: Path, made: onnx.ModelProto, cache: str = "one.cache", target: str = "trt11"
) -> onnx.ModelProto:
    """Convert a cache to Q/DQ, back, and again; both Q/DQ networks must be the same, and keep every scale."""
    onnx.save(made, place / "net.onnx")
    first, back, again = place / "first.onnx", place / "back.cache", place / "again.onnx"
    flags = ("--model", place / "net.onnx", "--target", target)
    assert calib("convert", place / cache, "-o", first, *flags) == 0
    assert calib("convert", first, "-o", back, "--model", place / "net.onnx", "--trt-version", "8.6.1") == 0
    assert calib("convert", back, "-o", again, *flags) == 0
    assert first.read_bytes() == again.read_bytes()
    found = load_model(first)
    onnx.checker.check_model(found)
    return found


def scales_of(found: onnx.ModelProto) -> list[np.ndarray]:
    """Scales of the activations' quantizers."""
    stored = {item.name: numpy_helper.to_array(item) for item in found.graph.initializer}
    quantizers = [item for item in found.graph.node if item.op_type == "QuantizeLinear"]
    return [stored[item.input[1]] for item in quantizers if item.input[0] not in stored]


@pytest.mark.parametrize("opset", OPSETS)
def test_every_opset_converts_back_to_the_same_network_and_runs(place: Path, opset: int) -> None:
    found = there_and_back(place, network(opset))
    assert found.opset_import[0].version == max(opset, 13)
    runner = OrtRunner(found, "first.onnx", optimize=True)
    image = np.random.default_rng(1).normal(size=(2, 3, 16, 16)).astype(np.float32)
    assert np.isfinite(runner.run({"image": image})["logits"]).all()


@pytest.mark.parametrize("opset", [13, 17, 19, 22])
@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_networks_convert_back_to_the_same_network(place: Path, kind: str, opset: int) -> None:
    found = there_and_back(place, network(opset, kind))
    assert found.opset_import[0].version == max(opset, 19)
    assert {item.dtype.name for item in scales_of(found)} == {kind}


@pytest.mark.parametrize("target", ["trt10", "trt11", "ort"])
def test_several_inputs_and_fixed_shapes(place: Path, capsys: pytest.CaptureFixture[str], target: str) -> None:
    there_and_back(place, network(two=True), "two.cache", target)
    there_and_back(place, network(dynamic=False), target=target)
    told = capsys.readouterr().out
    assert ("--shapes=image:1x3xHxW,gain:1x1x1x1" in told) == (target == "trt11")


def test_what_pooling_and_padding_pass_on_keeps_its_layers_in_int8(place: Path) -> None:
    """Q/DQ stands before the pooling; TensorRT 10 needs a scale behind it, or runs the layers there in float."""
    onnx.save(network(), place / "net.onnx")
    assert calib("convert", place / "one.cache", "-o", place / "q.onnx", "--model", place / "net.onnx") == 0
    assert calib("convert", place / "q.onnx", "-o", place / "jetson.cache", "--model", place / "net.onnx") == 0
    found = parse((place / "jetson.cache").read_bytes()).scales
    assert list(found) == ["image", "c", "p", "padded"]
    assert found["c"] == found["p"] == found["padded"]


def test_a_network_in_float64_says_why_nothing_is_quantized(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(network(kind="float64"), place / "net.onnx")
    assert calib("convert", place / "one.cache", "-o", place / "q.onnx", "--model", place / "net.onnx") == 2
    assert "operands are not float32, float16 or bfloat16" in capsys.readouterr().err
    assert not (place / "q.onnx").exists()


def test_paths_with_blanks_are_quoted_in_the_command_that_comes_next(place: Path, capsys) -> None:
    onnx.save(network(), place / "net.onnx")
    assert calib("convert", place / "one.cache", "-o", place / "a ü.onnx", "--model", place / "net.onnx") == 0
    assert f"trtexec '--onnx={place}/a ü.onnx' --shapes=image:1x3xHxW" in capsys.readouterr().out
    assert read_table((place / "one.cache").read_bytes(), "f").ranges["image"].amax == pytest.approx(2.64)
