"""What others trained, through the command line: converted, or refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from calib.cli.app import make_app, run
from calib.core.trtcache import parse
from calib.stages.qdq import quantize_model
from calib.stages.qdqread import read_qdq
from tests.core.formats.pickles import File
from tests.graphs import feeds, minmax, model, node, weight
from tests.graphs import run as run_onnx
from tests.stages.test_qdqread import qonnx_model, with_clip

LAYERS = (
    node("Conv", "image,stem.weight", "a", pads=[1, 1, 1, 1]),
    node("Relu", "a", "b"),
    node("Conv", "b,mix.weight", "c", pads=[1, 1, 1, 1]),
    node("Add", "c,b", "d"),
    node("Conv", "d,head.weight", "logits"),
)
WEIGHTS = {"stem.weight": weight(8, 3, 3, 3), "mix.weight": weight(8, 8, 3, 3), "head.weight": weight(3, 8, 1, 1)}


def calib(*arguments: object) -> int:
    return run(["cache", *map(str, arguments)], make_app((), (("cache", "calib.cli.cache"),)))


@pytest.fixture
def answer(capsys):
    """Run a command under ``--json``; answer its exit code and document."""

    def asked(*arguments: object) -> tuple[int, dict]:
        code = calib(*arguments, "--json")
        return code, json.loads(capsys.readouterr().out or "{}")

    return asked


@pytest.fixture(scope="module")
def floating() -> onnx.ModelProto:
    return model(LAYERS, {"image": ("N", 3, 16, 16)}, ["logits"], WEIGHTS, opset=17)


@pytest.fixture
def network(floating, tmp_path) -> Path:
    onnx.save(floating, tmp_path / "float.onnx")
    return tmp_path / "float.onnx"


def checkpoint(folder: Path, **changes: np.ndarray) -> Path:
    """A checkpoint of a wrapped network, as a trainer saves it: stem and mix quantized, ranges clipped."""
    state = dict(WEIGHTS)
    for name in ("stem", "mix", "head"):
        state[f"{name}.input_quantizer._amax"] = np.float32(2.5)
        amax = np.abs(WEIGHTS[f"{name}.weight"]).max((1, 2, 3), keepdims=True) * np.float32(0.75)
        state[f"{name}.weight_quantizer._amax"] = amax.astype(np.float32)
    state |= {key.replace("__", "."): value for key, value in changes.items()}
    wrapped = {f"module.{key}": value for key, value in state.items() if value is not None}
    (folder / "qat.pt").write_bytes(File({"epoch": 3, "state_dict": wrapped}).archive())
    return folder / "qat.pt"


def test_a_checkpoint_becomes_a_network_with_its_own_scales_without_pytorch(network, tmp_path, answer):
    source, out = checkpoint(tmp_path), tmp_path / "q.onnx"
    code, document = answer("convert", source, "-o", out, "--model", network)
    assert (code, document["unquantized"]) == (0, [])
    assert "3 weights of the network are the file's: 3 as they are" in document["notes"]
    weights = {item.name: item for item in read_qdq(onnx.load(out), "q").weights}
    assert set(weights) == {"stem.weight", "mix.weight"}  # the logits layer stays in float
    for name, item in weights.items():
        amax = np.abs(WEIGHTS[name]).max((1, 2, 3)) * np.float32(0.75)
        np.testing.assert_array_equal(item.scales, np.float32(np.float64(amax) / 127))


def test_as_trained_quantizes_the_layers_of_the_source_and_no_addition(network, tmp_path, answer):
    source, out = checkpoint(tmp_path), tmp_path / "q.onnx"
    _, document = answer("convert", source, "-o", out, "--model", network)
    assert "n_d" in document["layers"]["int8"]
    code, document = answer("convert", source, "-o", out, "--model", network, "--as-trained")
    assert (code, document["layers"]["int8"]) == (0, ["n_a", "n_c", "n_logits"])
    partly = checkpoint(tmp_path, mix__weight_quantizer___amax=None, mix__input_quantizer___amax=None)
    _, document = answer("convert", partly, "-o", out, "--model", network, "--as-trained")
    assert (document["layers"]["int8"], document["unquantized"]) == (["n_a", "n_logits"], ["n_c"])


def test_as_trained_needs_a_source_that_knows_layers(network, tmp_path, capsys):
    (tmp_path / "r.txt").write_text("image: 1.0\nb: 2.0\n")
    assert calib("convert", tmp_path / "r.txt", "-o", tmp_path / "q.onnx", "--model", network, "--as-trained") == 2
    assert "--as-trained" in capsys.readouterr().err


def test_ranges_on_a_network_with_other_weights_are_refused_with_numbers(network, tmp_path, answer, capsys):
    source = checkpoint(tmp_path, mix__weight=WEIGHTS["mix.weight"] * np.float32(1.0) + np.float32(0.05))
    for out in (tmp_path / "q.onnx", tmp_path / "q.cache"):
        assert calib("convert", source, "-o", out, "--model", network) == 2
        said = capsys.readouterr().err
        assert "1 tensor differs from the network's weights (module.mix.weight by" in said
        assert not out.exists()
    code, document = answer("convert", source, "-o", tmp_path / "q.onnx", "--model", network, "--partial")
    assert code == 0
    assert any("differs from the network's weights" in line for line in document["notes"])


def test_a_clipped_state_dict_is_no_cache_unless_its_clipping_is_given_up(network, tmp_path, capsys):
    source, out = checkpoint(tmp_path), tmp_path / "q.cache"
    assert calib("convert", source, "-o", out, "--model", network) == 2
    assert "largest magnitudes" in capsys.readouterr().err
    assert calib("convert", source, "-o", out, "--model", network, "--partial") == 0
    assert set(parse(out.read_bytes()).scales) >= {"image", "b", "d"}


def integer_weights(floating: onnx.ModelProto, *, zero: int, dtype: type) -> onnx.ModelProto:
    """A model as torchao writes it: unsigned activations, weights stored as integers, a DQ alone on them."""
    made = quantize_model(floating, minmax(floating, feeds(floating))).model
    values = {item.name: numpy_helper.to_array(item) for item in made.graph.initializer}
    for item in [one for one in made.graph.node if one.op_type == "QuantizeLinear" and one.input[0] in values]:
        scale = values[item.input[1]].reshape([-1, 1, 1, 1])
        integers = np.clip(np.rint(values[item.input[0]] / scale), -127, 127).astype(np.int8)
        made.graph.initializer.append(numpy_helper.from_array(integers, item.output[0]))
        made.graph.node.remove(item)
    made.graph.initializer.append(numpy_helper.from_array(np.asarray(zero, dtype), "zero"))
    for item in made.graph.node:
        if item.op_type in {"QuantizeLinear", "DequantizeLinear"} and not item.attribute:  # weights have an axis
            item.input[2] = "zero"
    return made


def test_an_asymmetric_network_is_refused_with_its_cost_then_written_symmetric(floating, tmp_path, answer, capsys):
    source, out = tmp_path / "ao.onnx", tmp_path / "q.onnx"
    onnx.save(integer_weights(floating, zero=100, dtype=np.uint8), source)
    assert calib("convert", source, "-o", out) == 2
    said = capsys.readouterr().err
    assert "zero point, which TensorRT rejects" in said
    assert "bits coarser" in said
    code, document = answer("convert", source, "-o", out, "--partial")
    assert code == 0
    assert "TensorRT rejects the file" in document["rejected"]
    assert any("2 weights turned back from integers" in line for line in document["notes"])
    found = read_qdq(onnx.load(out), "q")
    assert [item for item in found.remarks if item.blocks] == []
    source_range = read_qdq(onnx.load(source), "q").ranges["image"].amax
    assert found.ranges["image"].amax == pytest.approx(source_range, rel=1e-6)
    code, document = answer("lint", source)
    assert code == 1
    assert {"trt_type", "trt_zero_point", "asymmetric"} <= {item["code"] for item in document["findings"]}


def test_stored_integers_are_the_same_integers_in_the_new_network(floating, tmp_path, answer):
    source, out = tmp_path / "ao.onnx", tmp_path / "q.onnx"
    onnx.save(integer_weights(floating, zero=0, dtype=np.int8), source)
    code, document = answer("convert", source, "-o", out)
    assert (code, document["rejected"]) == (0, "")
    feed = feeds(floating)
    np.testing.assert_array_equal(run_onnx(onnx.load(out), feed)[0], run_onnx(onnx.load(source), feed)[0])
    assert answer("lint", source)[0] == 0


def test_a_quantized_network_against_another_float_one_is_refused(floating, tmp_path, capsys):
    source, other = tmp_path / "q.onnx", tmp_path / "other.onnx"
    onnx.save(quantize_model(floating, minmax(floating, feeds(floating))).model, source)
    changed = model(
        LAYERS, {"image": ("N", 3, 16, 16)}, ["logits"], WEIGHTS | {"mix.weight": weight(8, 8, 3, 3, seed=9)}
    )
    onnx.save(changed, other)
    assert calib("convert", source, "-o", tmp_path / "out.onnx", "--model", other) == 2
    assert "mix.weight by" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: with_clip(qonnx_free(), -8, 7), "fewer than 8 bits"),
        (lambda: qonnx_model(4), "fewer than 8 bits"),
        (lambda: qonnx_model(8, 0), "zero point, which TensorRT rejects"),
        (lambda: qonnx_model(op_type="BipolarQuant"), "not quantized to INT8"),
    ],
)
def test_networks_of_brevitas_are_refused_by_what_int8_cannot_hold(make, said, tmp_path, capsys):
    onnx.save(make(), tmp_path / "b.onnx")
    assert calib("convert", tmp_path / "b.onnx", "-o", tmp_path / "q.cache") == 2
    assert said in capsys.readouterr().err


def qonnx_free() -> onnx.ModelProto:
    from tests.core.formats.tables import qdq_model

    return qdq_model(0.5)


def test_a_qonnx_network_of_eight_signed_bits_becomes_one_for_tensorrt(tmp_path, answer):
    made = qonnx_model(8, 1, 0)
    made.graph.node.extend([node("Relu", "y", "r"), node("Conv", "r,w2", "z")])
    made.graph.initializer.append(numpy_helper.from_array(weight(2, 4, 1, 1), "w2"))
    made.graph.output[0].CopyFrom(onnx.helper.make_tensor_value_info("z", 1, [1, 2, 8, 8]))
    onnx.save(made, tmp_path / "b.onnx")
    code, document = answer("convert", tmp_path / "b.onnx", "-o", tmp_path / "q.onnx")
    assert code == 0
    assert "Quant" not in {item.op_type for item in onnx.load(tmp_path / "q.onnx").graph.node}
    assert "n_y" in document["layers"]["int8"]
    assert "operators that TensorRT does not have" in document["rejected"]
    run_onnx(onnx.load(tmp_path / "q.onnx"), {"x": np.zeros((1, 3, 8, 8), np.float32)})
