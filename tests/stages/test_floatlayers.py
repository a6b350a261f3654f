"""Which nodes patterns of names keep in float."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.graph import Network, analyse
from calib.errors import UsageError
from calib.stages.floatlayers import find_float_layers
from calib.stages.placement import plan_quantization

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
def network() -> Network:
    model = onnx.parser.parse_model(NETWORK)
    for node, name in zip(model.graph.node, NAMES, strict=True):
        node.name = name
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((4, 4, 1, 1), np.float32), "w"))
    return analyse(model)


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
    network: Network, pattern: str, nodes: tuple[str, ...]
) -> None:
    found = find_float_layers(network, [pattern], "trt10")
    assert (found.nodes, found.idle) == (nodes, ())


def test_what_stays_in_float_anyway_is_told_and_changes_nothing(network: Network) -> None:
    found = find_float_layers(network, ["head", "act", "stem"], "trt10")
    assert (found.nodes, found.idle) == (("stem",), ("head", "act"))


def test_the_plan_keeps_them_and_says_why(network: Network) -> None:
    ranges = dict.fromkeys((item.name for item in network.activations), 1.0)
    options = find_float_layers(network, ["body.0.conv"], "trt10").options()
    plan = plan_quantization(network, ranges, "trt10", options)
    reasons = {item.label: item.reason for item in plan.decisions}
    assert reasons["body.0.conv"] == "excluded"
    assert reasons["body.0.add"] == "layer_in_float"
    assert reasons["stem"] == reasons["layers[1]"] == "quantized"


def test_a_pattern_that_names_nothing_is_refused_with_names_that_would(network: Network) -> None:
    with pytest.raises(UsageError, match="nowhere") as error:
        find_float_layers(network, ["stem", "nowhere*"], "trt10")
    assert "stem, body.0.conv" in error.value.remedy


def test_without_patterns_the_rules_stand(network: Network) -> None:
    found = find_float_layers(network, [], "trt10")
    assert found.nodes == ()
    assert found.options().float_nodes == frozenset()
