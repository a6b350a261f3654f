"""The main job on networks of any layout: real ones, and small ones that each have one oddity."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from calib.core import trtcache
from calib.edges.progress import SilentProgress
from calib.errors import CalibError, ModelError
from calib.jobs.build import BuildRequest, build
from tests.builds import CHECKED, CLOSE, PLAIN, SIZE, build_and_check, graph, two_convolutions, weight


@pytest.mark.parametrize("opset", [7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23])
def test_opsets(images: Path, opset: int) -> None:
    build_and_check(two_convolutions(opset), images)


def renamed(model: onnx.ModelProto, names: Mapping[str, str]) -> onnx.ModelProto:
    for node in model.graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
    for item in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        item.name = names.get(item.name, item.name)
    return model


def test_names_with_colons_slashes_spaces_digits_and_quotes(images: Path) -> None:
    odd = {
        "image": "input_1:0",
        "a": "/enc/conv 1/out",
        "b": "314",
        "c": 'a "b" <c> é',
        "logits": "out: put",
        "w0": "1",
    }
    build_and_check(renamed(two_convolutions(), odd), images)


def test_initialisers_listed_as_inputs(images: Path) -> None:
    model = two_convolutions(11)
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, TensorProto.FLOAT, list(tensor.dims)))
    build_and_check(model, images)


def test_external_data(images: Path) -> None:
    path = images.parent / "outside.onnx"
    onnx.save(two_convolutions(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    build_and_check(path, images)
    (images.parent / "weights.bin").unlink()
    with pytest.raises(ModelError, match=r"weights\.bin"):
        build_and_check(path, images)


def test_channels_last_input(images: Path) -> None:
    nodes = [
        helper.make_node("Transpose", ["image"], ["t"], perm=[0, 3, 1, 2]),
        helper.make_node("Conv", ["t", "w0"], ["a"]),
        helper.make_node("Conv", ["a", "w1"], ["b"]),
        helper.make_node("Transpose", ["b"], ["logits"], perm=[0, 2, 3, 1]),
    ]
    weights = {"w0": weight(4, 3, 1, 1), "w1": weight(2, 4, 1, 1)}
    model = graph(nodes, {"image": (1, SIZE, SIZE, 3)}, {"logits": (1, SIZE, SIZE, 2)}, weights)
    build_and_check(model, images, f"{PLAIN},layout=nhwc")


def test_several_inputs_and_outputs(images: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["image", "w0"], ["a"]),
        helper.make_node("Mul", ["a", "gain"], ["g"]),
        helper.make_node("Conv", ["g", "w1"], ["mask"]),
        helper.make_node("ArgMax", ["mask"], ["ids"], axis=1),
        helper.make_node("GlobalAveragePool", ["a"], ["score"]),
    ]
    weights = {"w0": weight(4, 3, 1, 1), "w1": weight(2, 4, 1, 1)}
    inputs = {"image": ("N", 3, SIZE, SIZE), "gain": (1,)}
    model = graph(nodes, inputs, {"mask": ("N", 2, SIZE, SIZE), "score": ("N", 4, 1, 1)}, weights)
    model.graph.output.append(helper.make_tensor_value_info("ids", TensorProto.INT64, ["N", 1, SIZE, SIZE]))
    with pytest.raises(CalibError, match="gain"):
        build_and_check(model, images)
    images.write_text(images.read_text() + "inputs: {gain: 0.5}\n")
    output = build_and_check(model, images)
    names = [entry.name for entry in trtcache.parse((output / "minmax.cache").read_bytes()).entries]
    assert "ids" not in names
    assert {"image", "gain", "score", "mask"} <= set(names)


def test_any_size_takes_images_as_they_are(images: Path) -> None:
    cv2.imwrite(str(images.parent / "data/9.png"), np.zeros((30, 18, 3), np.uint8) + 90)
    model = two_convolutions()
    for value in (model.graph.input[0], model.graph.output[0]):
        for axis in (2, 3):
            value.type.tensor_type.shape.dim[axis].dim_param = f"d{axis}"
    images.write_text(
        images.read_text() + "preprocess: {colour: rgb, size: keep, scale: 1/255, mean: [0.5], std: [0.25]}\n"
    )
    path = images.parent / "net.onnx"
    onnx.save(model, path)
    output = images.parent / "out"
    build(
        BuildRequest(path, str(images), output, samplers=("random",), num_images=7, calibrators=CHECKED),
        SilentProgress(),
    )
    assert (output / "calibration.cache").is_file()


@pytest.mark.parametrize("length", [1, 4])
def test_a_fixed_batch(images: Path, length: int) -> None:
    model = two_convolutions()
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[0].dim_value = length
    build_and_check(model, images)


def test_half_precision(images: Path) -> None:
    model = two_convolutions(19, elem_type=TensorProto.FLOAT16)
    for tensor in model.graph.initializer:
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float16), tensor.name))
    build_and_check(model, images)


def make_dead(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.zeros((8, 3, 3, 3), np.float32), "w0"))
    return model


def test_dead_tensors_get_a_floor_and_are_named_in_the_report(images: Path) -> None:
    output = build_and_check(make_dead(two_convolutions()), images)
    assert "dead" in (output / "report.html").read_text()


def with_unknown_operator(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[1].op_type, model.graph.node[1].domain = "Sparkle", "ai.nobody"
    model.opset_import.append(helper.make_opsetid("ai.nobody", 1))
    return model


def with_qdq(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.initializer.append(numpy_helper.from_array(np.float32(0.1), "s"))
    model.graph.node[1].CopyFrom(helper.make_node("QuantizeLinear", ["a", "s"], ["q"]))
    model.graph.node.insert(2, helper.make_node("DequantizeLinear", ["q", "s"], ["b"]))
    return model


def without_input(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.initializer.append(numpy_helper.from_array(weight(1, 3, SIZE, SIZE), "image"))
    del model.graph.input[:]
    return model


@pytest.mark.parametrize("spoil", [with_unknown_operator, with_qdq, without_input])
def test_networks_that_cannot_be_calibrated_say_why(
    images: Path, spoil: Callable[[onnx.ModelProto], onnx.ModelProto]
) -> None:
    with pytest.raises(ModelError) as caught:
        build_and_check(spoil(two_convolutions()), images)
    assert caught.value.remedy


PORTRAITS = frozenset({"selfie_nhwc_opset11", "sinet_softmax_opset12"})
"""Networks that look for a person: on a street their output is next to nothing, and its relative error says little."""
CASES = {
    "selfie_nhwc_opset11": "colour=rgb,size=256x256,scale=1/255,mean=0,std=1,layout=nhwc",
    "sinet_softmax_opset12": "colour=bgr,size=320x320,scale=1,mean=107:118:124,std=63:66:67",
    "twinlitenet_opset14": "colour=rgb,size=360x640,scale=1/255,mean=0,std=1",
    "unet_small_opset18": "colour=gray,size=224x224,scale=1/255,mean=0,std=1",
}


@pytest.mark.parametrize("name", CASES)
def test_real_networks(name: str, shared: Path, images: Path) -> None:
    for old in (images.parent / "data").iterdir():
        old.unlink()
    frames = sorted((shared / "camvid/images/train").glob("*.jpg"))[::120]
    for frame in frames:
        (images.parent / "data" / f"{frame.stem}.png").write_bytes(
            cv2.imencode(".png", cv2.imread(str(frame)))[1].tobytes()
        )
    close = math.inf if name in PORTRAITS else CLOSE
    build_and_check(shared / "cases/models" / f"{name}.onnx", images, CASES[name], close=close)


def test_the_file_that_is_no_network_is_named(shared: Path, images: Path) -> None:
    with pytest.raises(ModelError, match="HTML"):
        build_and_check(shared / "cases/models/not_a_model_html.onnx", images)


def test_every_file_of_the_models_folder_is_covered(shared: Path) -> None:
    names = {path.stem for path in (shared / "cases/models").glob("*.onnx")}
    assert names - set(CASES) <= {"not_a_model_html"}
