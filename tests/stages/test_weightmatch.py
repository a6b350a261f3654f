"""Whether a network has the weights that the ranges belong to: as they are, folded, rounded, or others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from calib.core.formats.statedict import table_of
from calib.core.graph import analyse
from calib.core.quantization import fake_quantize
from calib.errors import FormatError
from calib.stages.modules import map_modules, to_tensors
from calib.stages.qdq import given_amax, quantize_model
from calib.stages.qdqread import read_qdq
from calib.stages.trained import planned_layers, quantize_as_trained, trained_layers
from calib.stages.weightmatch import match_weights, weight_remarks
from calib.types.rangetable import RangeTable, WeightRange
from tests.graphs import model, node

EPSILON = 1e-3
RNG = np.random.default_rng(3)


def draw(*shape: int) -> np.ndarray:
    return RNG.normal(0, 1, shape).astype(np.float32)


def norm(width: int) -> dict[str, np.ndarray]:
    gamma = RNG.uniform(-2, 2, width).astype(np.float32)
    parts = {"weight": gamma, "bias": draw(width), "running_mean": draw(width)}
    return parts | {"running_var": RNG.uniform(0.1, 3, width).astype(np.float32)}


STATE = {
    "stem.weight": draw(4, 3, 3, 3),
    **{f"bn.{key}": value for key, value in norm(4).items()},
    "other.running_var": np.ones(4, np.float32),
    "deep.weight": draw(4, 4, 1, 1),
    "deep.bias": draw(4),
    "up.weight": draw(4, 2, 2, 2),
    **{f"upbn.{key}": value for key, value in norm(4).items()},
    "fc.weight": draw(5, 5),
}
RANGES = {f"{name}.input_quantizer._amax": np.float32(2) for name in ("stem", "deep", "up", "fc")}


def folded(state: dict[str, np.ndarray], epsilon: float = EPSILON) -> onnx.ModelProto:
    """The network as an exporter writes it: both batch normalisations folded, the matrix product's weight turned."""
    factor, upfactor = (
        state[f"{name}.weight"] / np.sqrt(state[f"{name}.running_var"] + epsilon) for name in ("bn", "upbn")
    )
    rows = state["up.weight"].reshape(2, 2, 2, 2, 2) * upfactor.reshape(2, 1, 2, 1, 1)
    weights = {
        "onnx::Conv_1": state["stem.weight"] * factor.reshape(-1, 1, 1, 1),
        "onnx::Conv_2": state["bn.bias"] - state["bn.running_mean"] * factor,
        "deep.weight": state["deep.weight"], "deep.bias": state["deep.bias"],
        "onnx::ConvTranspose_3": rows.reshape(4, 2, 2, 2), "onnx::MatMul_4": state["fc.weight"].T,
    }  # fmt: skip
    nodes = [
        node("Conv", "x,onnx::Conv_1,onnx::Conv_2", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "r"),
        node("Conv", "r,deep.weight,deep.bias", "b"),
        node("ConvTranspose", "b,onnx::ConvTranspose_3", "c", strides=[2, 2], group=2),
        node("MatMul", "c,onnx::MatMul_4", "y"),
    ]  # fmt: skip
    for item, name in zip(nodes, ("/stem/Conv", "/Relu", "/deep/Conv", "/up/ConvTranspose", "/fc/MatMul"), strict=True):
        item.name = name
    stored = {name: np.ascontiguousarray(value, np.float32) for name, value in weights.items()}
    return model(nodes, {"x": (1, 3, 8, 8)}, ["b"], stored)


def matched(state: dict[str, np.ndarray], made: onnx.ModelProto):
    table = table_of(state | RANGES, "amax-npz", "s")
    network = analyse(made)
    modules = map_modules(made, network)
    return table, match_weights(table, made, network, modules)


def kinds(found) -> dict[str, str]:
    return {item.name.removesuffix(".weight"): item.likeness.kind for item in found}


def test_weights_are_recognised_through_folding_groups_and_transposition():
    table, found = matched(STATE, folded(STATE))
    assert kinds(found) == {"stem": "folded", "deep": "same", "up": "folded", "fc": "same"}
    stem = next(item for item in found if item.name == "stem.weight")
    assert stem.likeness.normalisation is not None
    assert (stem.likeness.normalisation.name, stem.bias) == ("bn", True)
    assert stem.likeness.epsilon == pytest.approx(EPSILON, rel=1e-2)
    (remark,) = weight_remarks(table, found)
    assert (remark.code, remark.blocks) == ("weights_checked", False)
    assert "4 weights" in remark.text
    assert "2 with their batch normalisation folded" in remark.text


def test_weights_of_before_the_training_are_noticed_with_numbers():
    before = STATE | {"stem.weight": STATE["stem.weight"] + 0.01 * draw(4, 3, 3, 3), "deep.weight": draw(4, 4, 1, 1)}
    table, found = matched(STATE, folded(before))
    assert kinds(found) == {"stem": "other", "deep": "other", "up": "folded", "fc": "same"}
    first = next(iter(weight_remarks(table, found)))
    assert (first.code, first.blocks, set(first.names)) == ("weights_other", True, {"stem.weight", "deep.weight"})
    assert "% of its largest value" in first.text


def test_batch_normalisations_of_another_state_are_noticed():
    moved = STATE | {"bn.running_var": STATE["bn.running_var"] * 1.1}
    table, found = matched(STATE, folded(moved))
    assert kinds(found)["stem"] == "scaled"
    assert "weights_scaled" in {item.code for item in weight_remarks(table, found) if item.blocks}
    shifted = STATE | {"bn.running_mean": STATE["bn.running_mean"] + 0.5}
    table, found = matched(STATE, folded(shifted))
    assert next(item for item in found if item.name == "stem.weight").bias is False
    assert "weights_bias" in {item.code for item in weight_remarks(table, found) if item.blocks}


def test_biases_and_kept_normalisations_of_another_state_are_noticed_by_name():
    changed = STATE | {"deep.bias": STATE["deep.bias"] + 0.5}
    table, found = matched(STATE, folded(changed))
    (first, *_) = weight_remarks(table, found)
    assert (first.code, first.blocks) == ("weights_bias", True)
    assert "deep.bias" in first.names


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_half_precision_on_either_side_is_no_difference(dtype):
    half = {key: value.astype(np.float16).astype(np.float32) for key, value in STATE.items()}
    made = folded(half)
    for item in made.graph.initializer:
        if dtype == np.float16:
            item.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(item).astype(dtype), item.name))
    _, found = matched(half, made)
    assert {item.likeness.sound for item in found} == {True}


def test_weights_that_were_exported_rounded_are_the_same():
    scales = np.abs(STATE["deep.weight"]).max((1, 2, 3)) / 127
    amax = {"deep.weight_quantizer._amax": (scales * 127).reshape(-1, 1, 1, 1).astype(np.float32)}
    rounded = STATE | {"deep.weight": fake_quantize(STATE["deep.weight"], scales, 0)}
    _, found = matched(STATE | amax, folded(rounded))
    assert kinds(found)["deep"] == "rounded"


def test_a_state_dict_without_weights_says_that_nothing_was_checked():
    table, found = matched({}, folded(STATE))
    assert [(item.code, item.blocks) for item in weight_remarks(table, found)] == [("weights_unchecked", False)]


def test_dead_channels_and_zero_factors_are_no_difference():
    dead = dict(STATE)
    dead["bn.weight"] = STATE["bn.weight"] * np.array([0, 1, 1, 1], np.float32)
    dead["stem.weight"] = STATE["stem.weight"] * np.array([1, 0, 1, 1], np.float32).reshape(-1, 1, 1, 1)
    assert kinds(matched(dead, folded(dead))[1])["stem"] == "folded"


def test_clipped_ranges_go_through_the_fold_with_gamma_over_the_deviation():
    clip = np.abs(STATE["stem.weight"]).max((1, 2, 3)) * 0.7
    table = table_of(STATE | RANGES | {"stem.weight_quantizer._amax": clip.reshape(-1, 1, 1, 1)}, "amax-npz", "s")
    made = folded(STATE)
    result = quantize_as_trained(made, table)
    assert result.given_weights == ("onnx::Conv_1",)  # no other layer has a weight quantizer
    named, _ = to_tensors(table, map_modules(made, analyse(made)))
    (given,) = named.weights
    assert given.name == "onnx::Conv_1"
    factor = np.abs(STATE["bn.weight"]) / np.sqrt(STATE["bn.running_var"] + EPSILON)
    own = np.abs(numpy_helper.to_array(made.graph.initializer[0])).max((1, 2, 3)).astype(np.float64)
    np.testing.assert_allclose(given_amax(own, given), clip * factor, rtol=1e-6)


def test_one_scale_of_a_whole_weight_covers_what_was_trained_per_channel():
    given = WeightRange("w", np.array([1.0, 2.0]) / 127, 0, np.array([2.0, 4.0]))
    assert given_amax(np.asarray(4.0), given) == pytest.approx(2.0)
    assert given_amax(np.asarray(4.0), replace(given, observed=None)) == 4.0


def test_a_quantized_file_against_another_float_network_is_noticed():
    made = folded(STATE)
    amax = dict.fromkeys((item.name for item in analyse(made).activations), 2.0)
    table = read_qdq(quantize_model(made, amax).model, "q")
    network = analyse(made)
    modules = map_modules(made, network)
    assert set(kinds(match_weights(table, made, network, modules)).values()) == {"same"}
    other = folded(STATE | {"stem.weight": draw(4, 3, 3, 3)})
    found = match_weights(table, other, analyse(other), map_modules(other, analyse(other)))
    assert "other" in kinds(found).values()


def test_layers_that_the_source_quantizes_are_told_by_module():
    state = RANGES | {f"{name}.weight_quantizer._amax": np.float32(1) for name in ("deep", "up")}
    table, made = table_of(state, "amax-npz", "s"), folded(STATE)
    network = analyse(made)
    found = trained_layers(table, network, map_modules(made, network))
    assert {network.nodes[index].name for index in found} == {"/deep/Conv", "/up/ConvTranspose"}
    assert planned_layers(made) == ("stem", "fc")


def test_ranges_of_other_weights_are_not_written():
    table = table_of(STATE | RANGES, "amax-npz", "s")
    with pytest.raises(FormatError, match=r"differs? from the network's weights"):
        quantize_as_trained(folded(STATE | {"deep.weight": draw(4, 4, 1, 1)}), table)
    assert isinstance(table, RangeTable)
