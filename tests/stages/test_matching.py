"""Two exports of one network are matched by structure, whatever the names and the order of the nodes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.graph import analyse
from calib.edges.models import load_model
from calib.stages.matching import match_networks
from tests.graphs import model, node, weight


def renamed(source: onnx.ModelProto, seed: int) -> tuple[onnx.ModelProto, dict[str, str]]:
    """Rename every tensor, and put the nodes into another topological order."""
    rng = np.random.default_rng(seed)
    made = onnx.ModelProto()
    made.CopyFrom(source)
    del made.graph.value_info[:]
    tensors = [*(item.name for item in made.graph.input), *(name for item in made.graph.node for name in item.output)]
    tensors += [item.name for item in made.graph.initializer]
    names = {name: f"t{place}" for name, place in zip(dict.fromkeys(tensors), rng.permutation(10**6), strict=False)}
    for item in made.graph.node:
        item.name = ""
        for field in (item.input, item.output):
            field[:] = [names.get(name, name) for name in field]
    for value in (*made.graph.input, *made.graph.output, *made.graph.initializer):
        value.name = names[value.name]
    nodes = shuffled(list(made.graph.node), {item.name for item in (*made.graph.input, *made.graph.initializer)}, rng)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made, names


def shuffled(nodes: list[onnx.NodeProto], known: set[str], rng: np.random.Generator) -> list[onnx.NodeProto]:
    done: list[onnx.NodeProto] = []
    while nodes:
        ready = [item for item in nodes if all(name in known for name in item.input if name)]
        chosen = ready[int(rng.integers(len(ready)))]
        nodes.remove(chosen)
        known.update(chosen.output)
        done.append(chosen)
    return done


@pytest.mark.parametrize("name", ["unet_small_opset18", "twinlitenet_opset14", "sinet_softmax_opset12"])
def test_every_tensor_of_a_renamed_and_reordered_export_is_found(shared, name):
    first = load_model(shared / "cases/models" / f"{name}.onnx")
    second, names = renamed(first, 7)
    one, two = analyse(first), analyse(second)
    found = match_networks(first, one, second, two)
    wrong = {key: value for key, value in found.pairs.items() if names[key] != value}
    assert wrong == {}
    assert len(found.pairs) >= 0.98 * len(one.activations)
    assert len(found.sure) >= 0.9 * len(one.activations)


def test_an_identity_that_one_exporter_leaves_out_does_not_matter():
    weights = {"w": weight(4, 3, 3, 3), "v": weight(4, 4, 1, 1, seed=2)}
    first = model(
        [node("Conv", "x,w", "a"), node("Identity", "a", "i"), node("Relu", "i", "r"), node("Conv", "r,v", "y")],
        {"x": (1, 3, 8, 8)}, ["y"], weights,
    )  # fmt: skip
    second = model(
        [node("Conv", "in,w", "p"), node("Relu", "p", "q"), node("Conv", "q,v", "out")],
        {"in": ("N", 3, "H", "W")}, ["out"], weights,
    )  # fmt: skip
    found = match_networks(first, analyse(first), second, analyse(second))
    assert found.pairs == {"x": "in", "a": "p", "i": "p", "r": "q", "y": "out"}
    assert (found.left, found.right) == ((), ())


def test_networks_that_share_nothing_match_nothing_but_their_like():
    first = model([node("Conv", "x,w", "y")], {"x": (1, 3, 8, 8)}, ["y"], {"w": weight(4, 3, 3, 3)})
    second = model([node("Gemm", "a,w", "b")], {"a": (1, 3)}, ["b"], {"w": weight(3, 4)})
    found = match_networks(first, analyse(first), second, analyse(second))
    assert (found.pairs, found.left, found.right) == ({}, ("x", "y"), ("a", "b"))
