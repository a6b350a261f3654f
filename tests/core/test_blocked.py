"""Tensors that come in blocks of channels hold what they hold in the usual layout, bit for bit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from calib.core.blocked import return_blocks
from calib.core.expose import expose
from calib.core.graph import analyse
from calib.core.segments import Segment, concrete_shapes, cut, tensor_bytes
from calib.edges.progress import SilentProgress
from calib.edges.runners import ort
from calib.edges.runners.blocks import block_width, optimized
from calib.edges.runners.ort import OrtChain
from calib.stages.collect import Collector
from calib.stages.derive import plan_observations
from calib.types.runner import Array, Blocks, to_host
from tests.builds import parsed, weight
from tests.stages.test_collect import assert_same

pytestmark = pytest.mark.skipif(not block_width(), reason="the runtime has no layout in blocks on this machine")

BODY = """
    a = Conv <pads = [1,1,1,1]> (image, w0)
    b = Clip (a, zero, six)
    c = Conv <pads = [1,1,1,1], group = 24> (b, depthwise)
    d = Relu (c)
    e = Conv (d, w1)
    f = Add (e, a)
    g = HardSwish (f)
    p = GlobalAveragePool (g)
    q = Conv (p, w1)
    r = Sigmoid (q)
    h = Mul (g, r)
    i = Conv <pads = [1,1,1,1], strides = [2,2]> (h, w2)
    j = LeakyRelu <alpha = 0.1> (i)
    k = MaxPool <kernel_shape = [2,2], strides = [2,2]> (j)
    l = Conv (k, w3)
    m = Tanh (l)
    n = Identity (m)
    logits = Conv (n, w4)
"""
WEIGHTS = {
    "w0": weight(24, 3, 3, 3),
    "depthwise": weight(24, 1, 3, 3, seed=1),
    "w1": weight(24, 24, 1, 1, seed=2),
    "w2": weight(40, 24, 3, 3, seed=3),
    "w3": weight(11, 40, 1, 1, seed=4),
    "w4": weight(5, 11, 1, 1, seed=5),
    "zero": np.float32(0),
    "six": np.float32(0.5),
}


def network() -> onnx.ModelProto:
    return parsed(BODY, WEIGHTS, inputs="float[N,3,H,W] image", outputs="float[N,5,P,Q] logits")


def both_ways(model: onnx.ModelProto, names: list[str], feeds: Any, budget: int = 1 << 40) -> tuple[Any, Any]:
    """What a network returns in the usual layout, and with blocks."""
    analysis = analyse(model)
    shapes = concrete_shapes(model, {name: array.shape for name, array in feeds.items()})
    segments = cut(model, analysis, names, tensor_bytes(analysis, shapes), budget)
    return OrtChain(segments, "net").run(feeds), OrtChain(segments, "net", blocks=True).run(feeds)


def assert_equal(plain: Mapping[str, Array], blocked: Mapping[str, Array]) -> int:
    """Every tensor is there and the same; returns how many came in blocks."""
    assert list(plain) == list(blocked)
    for name, array in plain.items():
        assert blocked[name].shape == array.shape, name
        np.testing.assert_array_equal(to_host(blocked[name]), array, err_msg=name)
    return sum(isinstance(array, Blocks) for array in blocked.values())


def picture(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(1, 3, 32, 32), (3, 3, 20, 28), (2, 3, 7, 5)])
def test_every_tensor_is_the_same(shape: tuple[int, ...]) -> None:
    names = [*"abcdefghijklm", "logits"]
    assert assert_equal(*both_ways(network(), names, {"image": picture(*shape)})) >= 10


def test_a_chain_hands_on_what_later_segments_read() -> None:
    names = [*"abcdefghijklm", "logits"]
    plain, blocked = both_ways(network(), names, {"image": picture(2, 3, 32, 32)}, 3 * 2 * 24 * 32 * 32 * 4)
    assert assert_equal(plain, blocked) >= 5


def test_activations_run_on_blocks() -> None:
    whole = optimized(expose(network(), list("abcd")))
    assert whole is not None
    model, blocks = return_blocks(whole)
    before, after = (Counter(node.op_type for node in each.graph.node) for each in (whole, model))
    assert set(blocks) == set("abcd")
    assert before["ReorderOutput"] >= 3
    assert before["Clip"] == after["Clip"] == 1
    assert not after["ReorderOutput"]
    assert not after["ReorderInput"]
    assert len({tensor.name for tensor in blocks.values()}) == 4
    assert {tensor.channels for tensor in blocks.values()} == {24}


def test_what_is_wanted_in_the_usual_layout_stays_in_it() -> None:
    whole = optimized(expose(network(), list("abc")))
    assert whole is not None
    model, blocks = return_blocks(whole, plain={"b"})
    assert set(blocks) == {"a", "c"}
    assert [output.name for output in model.graph.output] == [blocks["a"].name, "b", blocks["c"].name]


def test_the_network_that_is_rewritten_stays_as_it_is() -> None:
    whole = optimized(expose(network(), list("abc")))
    assert whole is not None
    before = whole.SerializeToString(deterministic=True)
    return_blocks(whole)
    assert whole.SerializeToString(deterministic=True) == before


def test_one_tensor_under_two_names_comes_under_both() -> None:
    body = """
        a = Conv <pads = [1,1,1,1]> (image, w0)
        b = Identity (a)
        c = Relu (b)
        logits = Conv (c, w1)
    """
    model = parsed(body, WEIGHTS, inputs="float[N,3,H,W] image", outputs="float[N,24,P,Q] logits")
    assert assert_equal(*both_ways(model, ["a", "b", "c", "logits"], {"image": picture(1, 3, 16, 16)})) >= 2


def test_a_tensor_that_a_branch_reads_stays_readable() -> None:
    body = """
        a = Conv <pads = [1,1,1,1]> (image, w0)
        b = Clip (a, zero, six)
        m = ReduceMax <keepdims = 0> (image)
        high = Greater (m, zero)
        c = If (high) <
            then_branch = t () => (float[N,24,P,Q] y) { y = Neg (b) },
            else_branch = e () => (float[N,24,P,Q] y) { y = Identity (b) }
        >
        logits = Conv (c, w1)
    """
    model = parsed(body, WEIGHTS, inputs="float[N,3,H,W] image", outputs="float[N,24,P,Q] logits")
    assert assert_equal(*both_ways(model, ["a", "b", "logits"], {"image": picture(1, 3, 16, 16)})) >= 2


def test_a_product_of_unlike_shapes_is_not_computed_on_blocks() -> None:
    body = """
        a = Conv <pads = [1,1,1,1]> (image, w0)
        s = Conv <pads = [1,1,1,1]> (image, column)
        t = HardSigmoid (s)
        b = Mul (a, t)
        logits = Conv (b, w1)
    """
    weights = {**WEIGHTS, "column": weight(1, 3, 3, 3, seed=9)}
    model = parsed(body, weights, inputs="float[N,3,H,W] image", outputs="float[N,24,P,Q] logits")
    assert_equal(*both_ways(model, ["a", "s", "t", "b", "logits"], {"image": picture(1, 3, 16, 16)}))


def test_without_such_a_layout_all_comes_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ort, "block_width", lambda: 0)
    assert assert_equal(*both_ways(network(), ["a", "b", "logits"], {"image": picture(1, 3, 16, 16)})) == 0


def test_a_graph_that_the_runtime_will_not_take_back_comes_as_usual(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: onnx.ModelProto) -> onnx.ModelProto | None:
        whole = optimized(model)
        if whole is not None:
            whole.graph.node[0].op_type = "Unheard"
        return whole

    monkeypatch.setattr(ort, "optimized", broken)
    assert assert_equal(*both_ways(network(), ["a", "b", "logits"], {"image": picture(1, 3, 16, 16)})) == 0


@pytest.mark.parametrize("options", [{}, {"rows": 3}, {"rows": 4, "fill": True}])
def test_collecting_from_blocks_gives_the_same_statistics(options: dict[str, Any]) -> None:
    model = network()
    analysis = analyse(model)
    plan = plan_observations(analysis)
    names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
    data = {f"{number}": {"image": picture(1, 3, 16 + number % 2, 16) * (number + 1)} for number in range(6)}
    if "fill" in options:
        data = {key: {"image": feed["image"][:, :, :16]} for key, feed in data.items()}
    segment = Segment(expose(model, names), tuple(names))
    plain, blocked = (
        Collector(analysis, plan, OrtChain([segment], "net", blocks=blocks), data.__getitem__, **options)
        .collect(list(data), workers=2, progress=SilentProgress())
        .statistics
        for blocks in (False, True)
    )
    assert_same(blocked, plain)


def test_a_non_finite_value_in_blocks_is_told_with_its_image() -> None:
    model = network()
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.full((24, 3, 3, 3), 3e38, np.float32), "w0"))
    analysis = analyse(model)
    plan = plan_observations(analysis)
    names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
    data = {
        "small": {"image": np.zeros((1, 3, 8, 8), np.float32)},
        "large": {"image": np.ones((1, 3, 8, 8), np.float32)},
    }
    chain = OrtChain([Segment(expose(model, names), tuple(names))], "net", blocks=True)
    collector = Collector(analysis, plan, chain, data.__getitem__, rows=2)
    with pytest.raises(Exception, match="large") as caught:
        collector.collect(list(data), workers=1, progress=SilentProgress())
    assert caught.value.place == "tensor 'a', image large"
    assert caught.value.got.startswith(f"{24 * 64} NaN or infinite of {2 * 24 * 64} values")


@pytest.mark.parametrize(
    "file",
    [
        "models/deeplabv3plus_mnv2.onnx",
        "models/unetpp_se.onnx",
        "cases/models/sinet_softmax_opset12.onnx",
        "cases/models/twinlitenet_opset14.onnx",
        "cases/models/unet_small_opset18.onnx",
        "cases/models/selfie_nhwc_opset11.onnx",
    ],
)
def test_networks_of_several_exporters(file: str, shared: Path) -> None:
    model = onnx.load(shared / file)
    analysis = analyse(model)
    (entry,) = analysis.inputs
    shape = [length or default for length, default in zip(entry.shape or (), (1, 3, 96, 128), strict=True)]
    names = [
        name for name, item in plan_observations(analysis).observed.items() if item.activation.producer is not None
    ]
    assert_equal(*both_ways(model, names, {entry.name: picture(*shape)}))


@pytest.mark.parametrize("op", ["Elu", "Mish", "Selu", "Softplus", "Sigmoid", "Tanh", "Erf", "Softsign"])
def test_functions_give_the_same_digits_wherever_a_value_lies(op: str) -> None:
    body = f"a = Conv <pads = [1,1,1,1]> (image, w0)\n logits = {op} (a)"
    model = parsed(
        body,
        {"w0": weight(11, 3, 3, 3)},
        inputs="float[N,3,H,W] image",
        outputs="float[N,11,P,Q] logits",
        opset=20,
    )
    for size in range(5, 60, 6):
        assert_equal(*both_ways(model, ["a", "logits"], {"image": picture(3, 3, size, 13)}))


def test_values_rounded_to_half_precision_come_as_usual() -> None:
    body = """
      a = Cast <to = 10> (image)
      b = Relu (a)
      c = Cast <to = 1> (b)
      d = Cast <to = 10> (c)
      e = Relu (d)
      f = Cast <to = 1> (e)
      g = Conv (f, w0)
      logits = Conv (g, w1)
    """
    weights = {"w0": weight(16, 3, 1, 1), "w1": weight(16, 16, 1, 1)}
    model = parsed(body, weights, inputs="float[N,3,H,W] image", outputs="float[N,16,P,Q] logits")
    assert assert_equal(*both_ways(model, ["d", "g", "logits"], {"image": picture(2, 3, 9, 7)})) == 0
