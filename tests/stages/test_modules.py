"""Modules of a PyTorch network in its ONNX export, and weight ranges behind a folded batch normalisation."""

from __future__ import annotations

import numpy as np
import pytest

from calib.core.graph import analyse
from calib.stages.modules import map_modules, path_of, to_modules, to_tensors
from calib.stages.qdq import given_amax, quantize_model
from calib.types.rangetable import RangeTable, TensorRange, WeightRange
from tests.graphs import model, node, weight


def table(**amax: float) -> RangeTable:
    ranges = {name.replace("__", "."): TensorRange(name.replace("__", "."), value) for name, value in amax.items()}
    return RangeTable(ranges, "amax-npz", "t", naming="module")


@pytest.fixture(scope="module")
def exported():
    """A stem whose weight kept its name, a folded convolution that is known by its path, and a pooling."""
    nodes = [
        node("Conv", "x,stem.weight", "a"),
        node("Conv", "a,onnx::Conv_7", "b"),
        node("GlobalAveragePool", "b", "p"),
        node("Flatten", "p", "f"),
        node("Gemm", "f,model.head.weight", "y", transB=1),
    ]
    for item, name in zip(
        nodes, ("/stem/Conv", "/layer1/layer1.0/conv/Conv", "/pool/GlobalAveragePool", "/F", "/head/Gemm"), strict=True
    ):
        item.name = name
    weights = {
        "stem.weight": weight(4, 3, 1, 1),
        "onnx::Conv_7": weight(4, 4, 1, 1, seed=1),
        "model.head.weight": weight(2, 4, seed=2),
    }
    return model(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights)


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("/layer1/layer1.0/conv1/Conv", "layer1.0.conv1"),
        ("/model.22/cv2.0/cv2.0.1/act/Mul", "model.22.cv2.0.1.act"),
        ("/Conv", ""),
        ("node_conv2d_3", ""),
        ("", ""),
    ],
)
def test_node_names_spell_module_paths(name, path):
    assert path_of(name) == path


def test_quantizers_find_their_tensors_by_weight_name_path_and_wrapper_prefix(exported):
    modules = map_modules(exported, analyse(exported))
    source = table(
        stem__input_quantizer=1.0, layer1__0__conv___input_quantizer=2.0, pool__input_quantizer=3.0,
        module__head__input_quantizer=4.0, head__output_quantizer=5.0, attn__q_bmm_quantizer=6.0,
    )  # fmt: skip
    found, lost = to_tensors(source, modules)
    assert {item.name: item.amax for item in found} == {"x": 1.0, "a": 2.0, "b": 3.0, "f": 4.0, "y": 5.0}
    assert lost == ("attn.q_bmm_quantizer",)
    assert found.naming == "tensor"


def test_tensors_go_back_to_the_input_quantizers_of_modules_with_a_weight(exported):
    modules = map_modules(exported, analyse(exported))
    ranges = {name: TensorRange(name, value) for name, value in (("x", 1.0), ("a", 2.0), ("b", 3.0), ("f", 4.0))}
    found, unneeded = to_modules(RangeTable(ranges, "trt-cache", "t"), modules)
    assert {item.name: item.amax for item in found} == {
        "stem.input_quantizer": 1.0,
        "layer1.0.conv.input_quantizer": 2.0,
        "model.head.input_quantizer": 4.0,
    }
    assert (unneeded, found.naming) == (("b",), "module")


def test_modules_that_read_one_tensor_and_disagree_are_remarked_on():
    nodes = [node("Conv", "x,p.weight", "a"), node("Conv", "x,q.weight", "b"), node("Add", "a,b", "y")]
    made = model(nodes, {"x": (1, 3, 8, 8)}, ["y"], {"p.weight": weight(4, 3, 1, 1), "q.weight": weight(4, 3, 1, 1)})
    modules = map_modules(made, analyse(made))
    found, _ = to_tensors(table(p__input_quantizer=1.0, q__input_quantizer=2.0), modules)
    assert found.ranges["x"].amax == 2.0
    assert [(item.code, item.names, item.blocks) for item in found.remarks] == [("conflicts", ("x",), True)]
    agreed, _ = to_tensors(table(p__input_quantizer=2.0, q__input_quantizer=2.0), modules)
    assert agreed.remarks == ()


def test_clipped_channels_keep_their_share_behind_a_folded_batch_normalisation(exported):
    before = np.array([1.0, 2.0, 4.0, 0.0])
    scales = np.asarray(before * 0.5 / 127, np.float32).astype(np.float64)
    given = WeightRange("onnx::Conv_7", scales, 0, before)
    folded = before * np.array([3.0, 0.25, 1.0, 1.0])
    np.testing.assert_allclose(given_amax(folded, given), folded * 0.5, rtol=1e-7)
    np.testing.assert_array_equal(given_amax(before, given), scales * 127)
    np.testing.assert_array_equal(given_amax(np.ones(3), given), np.ones(3))
    amax = dict.fromkeys(("x", "a", "b", "p", "f", "y"), 1.0)
    result = quantize_model(exported, amax, weights={"onnx::Conv_7": given})
    assert result.given_weights == ("onnx::Conv_7",)
    assert quantize_model(exported, amax).given_weights == ()
