"""Which nodes patterns of names keep in float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.graph import analyse
from calib.errors import UsageError
from calib.stages.floatlayers import find_float_layers
from calib.stages.foldnorms import fold_norms
from calib.stages.placement import plan_quantization
from calib.stages.qdq import quantize_model

NETWORK = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[1,4,8,8] image) => (float[1,4,8,8] logits)
{
  a = Conv (image, w)
  b = Conv (a, w)
  s = Add (b, a)
  c = Conv (s, w)
  d = Conv (c, w)
  r = Relu (d)
  logits = Conv (r, w)
}
"""


NAMES = ("stem", "body.0.conv", "body.0.add", "layers[1]", "", "act", "head")


@pytest.fixture(scope="module")
def model() -> onnx.ModelProto:
    model = onnx.parser.parse_model(NETWORK)
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w"))
    return model


def test_a_name_spelt_just_so_names_nothing_else(model: onnx.ModelProto) -> None:
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    renamed.graph.node[0].name = "layers1"
    assert find_float_layers(renamed, ["layers[1]"], "trt10").nodes == ("layers[1]",)
    assert find_float_layers(renamed, ["layers[12]"], "trt10").nodes == ("layers1",)


@pytest.mark.parametrize(
    ("pattern", "nodes"),
    [
        ("stem", ("stem",)),
        ("body.*", ("body.0.conv", "body.0.add")),
        ("layers[1]", ("layers[1]",)),
        ("layers*", ("layers[1]",)),
        ("c", ("layers[1]",)),
        ("Conv(d)", ("Conv(d)",)),
        ("d", ("Conv(d)",)),
        ("*", ("stem", "body.0.conv", "body.0.add", "layers[1]", "Conv(d)")),
    ],
)
def test_a_pattern_names_nodes_by_their_names_or_by_what_they_make(
    model: onnx.ModelProto, pattern: str, nodes: tuple[str, ...]
) -> None:
    found = find_float_layers(model, [pattern], "trt10")
    assert (found.nodes, found.idle) == (nodes, ())


def test_what_stays_in_float_anyway_is_told_and_changes_nothing(model: onnx.ModelProto) -> None:
    found = find_float_layers(model, ["head", "act", "stem"], "trt10")
    assert (found.nodes, found.idle) == (("stem",), ("head", "act"))


def test_the_plan_keeps_them_and_says_why(model: onnx.ModelProto) -> None:
    network = analyse(model)
    ranges = dict.fromkeys((item.name for item in network.activations), 1.0)
    options = find_float_layers(model, ["body.0.conv"], "trt10").options()
    plan = plan_quantization(network, ranges, "trt10", options)
    reasons = {item.label: item.reason for item in plan.decisions}
    assert reasons["body.0.conv"] == "excluded"
    assert reasons["body.0.add"] == "layer_in_float"
    assert reasons["stem"] == reasons["layers[1]"] == "quantized"


def test_a_pattern_that_names_nothing_is_refused_with_names_that_would(model: onnx.ModelProto) -> None:
    with pytest.raises(UsageError, match="nowhere") as error:
        find_float_layers(model, ["stem", "nowhere*"], "trt10")
    assert "stem, body.0.conv" in error.value.remedy
    with pytest.raises(UsageError) as error:
        find_float_layers(model, ["0.conv*"], "trt10")
    assert error.value.remedy == "name body.0.conv in full, or put * before and after '0.conv'"


def test_without_patterns_the_rules_stand(model: onnx.ModelProto) -> None:
    found = find_float_layers(model, [], "trt10")
    assert found.nodes == ()
    assert found.options().float_nodes == frozenset()


NORMALISED = """
<ir_version: 8, opset_import: ["" : 13]>
net (float[1,2,8,8] image) => (float[1,2,8,8] logits)
{
  a = Conv (image, w)
  n = BatchNormalization (a, one, zero, zero, one)
  r = Relu (n)
  logits = Conv (r, w)
}
"""


@pytest.mark.parametrize("pattern", ["a", "n", "Conv(a)", "Conv(n)", "BatchNormalization(n)"])
def test_a_layer_goes_by_the_normalisation_that_is_folded_into_it_too(pattern: str) -> None:
    model = onnx.parser.parse_model(NORMALISED)
    for name, value in (("w", np.ones((2, 2, 1, 1))), ("one", np.ones(2)), ("zero", np.zeros(2))):
        model.graph.initializer.append(onnx.numpy_helper.from_array(value.astype(np.float32), name))
    found = find_float_layers(model, [pattern], "trt10")
    assert found.options().float_nodes == {"Conv(a)", "Conv(n)"}
    amax = dict.fromkeys(("image", "a", "n", "r"), 1.0)
    assert not quantize_model(model, amax, "trt10", found.options()).plan.activations
    assert quantize_model(model, amax, "trt10").plan.activations
    network = analyse(model)  # as an engine from a cache has it: TensorRT folds by itself
    plan = plan_quantization(network, amax, "trt10", found.options())
    assert {item.label: item.reason for item in plan.decisions}["Conv(a)"] == "excluded"
    assert set(found.patterns) <= {"n", "Conv(n)"}
    again = find_float_layers(fold_norms(model).model, found.patterns, "trt10")
    assert again.nodes == found.nodes


@pytest.mark.parametrize("opset", [7, 9, 11])
def test_layers_are_found_at_the_operator_set_they_are_quantized_at(opset: int) -> None:
    model = onnx.parser.parse_model(NETWORK.replace("13]", f"{opset}]"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w"))
    found = find_float_layers(model, ["c"], "trt11")
    assert (found.nodes, found.idle) == (("Conv(c)",), ())
    amax = dict.fromkeys("abscdr", 1.0) | {"image": 1.0}
    decisions = quantize_model(model, amax, "trt11", found.options()).plan.decisions
    assert [item.label for item in decisions if item.reason == "excluded"] == ["Conv(c)"]


def test_a_node_goes_before_a_tensor_of_the_same_name(model: onnx.ModelProto) -> None:
    renamed = onnx.ModelProto()
    renamed.CopyFrom(model)
    renamed.graph.node[0].name = "d"
    assert find_float_layers(renamed, ["d"], "trt10").nodes == ("d",)
