"""Units of Q/DQ networks: found whoever placed the pairs, switched exactly, the rest left as it is."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.sensitivity.units import find_units, switched, unique_names
from calib.errors import ModelError
from tests.graphs import feeds, model, node, run, weight
from tests.sensitivities import NETWORKS, SIZE, chain, image, only, with_dynamic_scale

GRAINS = ("layer", "tensor")


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("grain", GRAINS)
def test_all_units_on_is_the_quantized_network_and_none_the_float_one(name: str, grain: str):
    network = NETWORKS[name]
    values = feeds(network, size=SIZE)
    alone = find_units(network, "alone", grain)
    without = find_units(network, "without", grain)
    whole, bare = run(network, values), run(only(network, set()), values)
    for found, wanted in (
        (run(switched(alone, alone.units), values), whole),
        (run(switched(alone, ()), values), bare),
        (run(switched(without, ()), values), whole),
        (run(switched(without, without.units), values), bare),
    ):
        for got, expected in zip(found, wanted, strict=True):
            np.testing.assert_array_equal(got, expected)
    assert not np.array_equal(whole[0], bare[0])


@pytest.mark.parametrize("name", ["chain", "per-tensor", "matrices", "runtime"])
def test_a_tensor_alone_is_the_network_with_only_its_pairs(name: str):
    network = NETWORKS[name]
    values = feeds(network, size=SIZE)
    subject = find_units(network, "alone", "tensor")
    sources = {item.name: item.input[0] for item in network.graph.node if item.op_type == "QuantizeLinear"}
    assert len(subject.units) == len(sources)
    for unit in subject.units:
        roots = {*unit.activations, *unit.weights}
        kept = {
            key for key, source in sources.items() if source in roots or (name, source) == ("runtime", "logits_raw")
        }
        kept = {key for key in kept if sources[key] in roots}
        if not kept:
            continue
        for got, expected in zip(run(switched(subject, [unit]), values), run(only(network, kept), values), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_a_layer_holds_its_activation_and_its_weight():
    subject = find_units(NETWORKS["chain"])
    units = {unit.name: unit for unit in subject.units}
    assert units["n_c1"].activations == ("r0",)
    assert units["n_c1"].weights == ("w1",)
    assert units["n_a"].activations == ("r0",)  # the shortcut side of the addition
    assert [unit.name for unit in subject.units] == ["n_c0", "n_c1", "n_c2", "n_a", "n_c3", "n_logits"]


def test_a_pair_before_a_pool_belongs_to_each_reader_behind_it():
    subject = find_units(NETWORKS["pooled"])
    assert [(unit.name, unit.activations) for unit in subject.units] == [("n_c1", ("c0",)), ("n_s", ("c0",))]
    values = feeds(NETWORKS["pooled"], size=SIZE)
    layer, gate = ([unit] for unit in subject.units)
    for switched_on, touched, untouched in ((layer, "c1", "s"), (gate, "s", "c1")):
        written = switched(subject, switched_on)
        np.testing.assert_array_equal(
            run(exposed(written, untouched), values)[0], run(exposed(subject.model, untouched), values)[0]
        )
        assert not np.array_equal(
            run(exposed(written, touched), values)[0], run(exposed(subject.model, touched), values)[0]
        )


def exposed(network: onnx.ModelProto, name: str) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    del copy.graph.output[:]
    copy.graph.output.append(onnx.ValueInfoProto(name=name))
    return copy


def test_weights_stored_as_integers_are_named_and_stay():
    subject = find_units(NETWORKS["runtime"])
    assert set(subject.stored) == {"w_int", "v_int"}
    assert all(not unit.weights for unit in subject.units)
    assert any(unit.op_type == "Identity" for unit in subject.units)  # the pair on the output


def test_a_pair_with_a_computed_scale_stays_in_place():
    subject = find_units(with_dynamic_scale())
    assert [unit.name for unit in subject.units] == ["n_logits"]
    assert sum(item.op_type == "QuantizeLinear" for item in subject.model.graph.node) == 1


def test_the_given_network_is_not_changed():
    before = NETWORKS["moved"].SerializeToString()
    subject = find_units(NETWORKS["moved"], "without")
    switched(subject, subject.units)
    assert NETWORKS["moved"].SerializeToString() == before


def test_a_float_network_and_integer_operators_are_refused():
    with pytest.raises(ModelError, match="a float network"):
        find_units(chain())
    integer = model(
        [node("ConvInteger", "image,w", "logits")],
        image(),
        ["logits"],
        {"w": np.ones((3, 3, 1, 1), np.int8)},
        elem_type=onnx.TensorProto.UINT8,
        output_type=onnx.TensorProto.INT32,
    )
    with pytest.raises(ModelError, match="ConvInteger"):
        find_units(integer)


def test_equal_names_are_numbered():
    network = NETWORKS["chain"]
    copy = onnx.ModelProto()
    copy.CopyFrom(network)
    for item in copy.graph.node:
        if item.op_type == "Conv":
            item.name = "conv"
    names = [unit.name for unit in unique_names(find_units(copy).units)]
    assert names == ["conv", "conv #2", "conv #3", "n_a", "conv #4", "conv #5"]
    assert weight(2, 2).shape == (2, 2)
