"""A relay runs each unit exactly as the whole network with that unit switched, however it is cut."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from calib.core.sensitivity import cutting
from calib.core.sensitivity.relay import Relay, all_shapes, unit_macs
from calib.core.sensitivity.units import find_units, switched
from calib.edges.runners.session import Session, as_array
from calib.stages.sensitivity import RelayRunner
from tests.graphs import feeds, run
from tests.sensitivities import NETWORKS, SIZE


def literal(model: onnx.ModelProto) -> Session:
    """Every operator computed on its own: results do not depend on where the network is cut."""
    return Session(model, "test", "cpu", optimize=False)


def fused(model: onnx.ModelProto) -> Session:
    return Session(model, "test", "cpu", fuse_quantizers=False, memory="shared")


def relay_of(name: str, mode: str, grain: str, output: str = "logits"):
    subject = find_units(NETWORKS[name], mode, grain)
    values = feeds(NETWORKS[name], size=1)
    return subject, values, Relay(subject, output, all_shapes(subject, {k: v.shape for k, v in values.items()}))


CUTS = {
    "one leg": lambda line, places, *rest: [places[0], places[-1]],
    "as chosen": cutting.choose_cuts,
    "everywhere": lambda line, places, *rest: list(places),
}


@pytest.mark.parametrize("cuts", CUTS)
@pytest.mark.parametrize("mode", ["alone", "without"])
@pytest.mark.parametrize("grain", ["layer", "tensor"])
@pytest.mark.parametrize("name", NETWORKS)
def test_each_unit_is_the_whole_network_with_it_switched(name: str, grain: str, mode: str, cuts: str, monkeypatch):
    monkeypatch.setattr("calib.core.sensitivity.relay.choose_cuts", CUTS[cuts])
    subject, values, relay = relay_of(name, mode, grain)
    if cuts == "everywhere":
        assert len(relay.legs) > 1
    runner = RelayRunner(relay, literal)
    base = runner.base(values)
    plain = run(subject.model, values)[0]
    np.testing.assert_array_equal(as_array(base[-1]["logits"]), plain)
    seen = []
    for unit, value in runner.units(values, base, relay.reachable):
        seen.append(unit)
        expected = run(switched(subject, [subject.units[unit]]), values)[0]
        np.testing.assert_array_equal(plain if value is None else as_array(value), expected, subject.units[unit].name)
    assert sorted(seen) == list(relay.reachable)


@pytest.mark.parametrize("name", NETWORKS)
def test_optimized_parts_agree_up_to_rounding(name: str):
    subject, values, relay = relay_of(name, "alone", "layer")
    runner = RelayRunner(relay, fused)
    base = runner.base(values)
    scale = np.abs(as_array(base[-1]["logits"])).max()
    for unit, value in runner.units(values, base, relay.reachable):
        expected = run(switched(subject, [subject.units[unit]]), values)[0]
        close = np.abs(as_array(value) - expected) < 1e-4 * scale
        assert close.mean() > 0.9  # an activation next to a rounding border may fall on either side of it


def test_units_off_the_way_to_the_output_are_left_out():
    subject, _, relay = relay_of("shaped", "alone", "layer")
    assert [subject.units[number].name for number in relay.reachable] == ["n_c0", "n_c1"]
    _, _, other = relay_of("shaped", "alone", "layer", "aux")
    assert [subject.units[number].name for number in other.reachable] == ["n_c0", "n_aux"]


def test_what_a_unit_does_not_reach_is_not_run_again():
    subject, values, relay = relay_of("chain", "alone", "layer")
    numbers = {unit.name: number for number, unit in enumerate(subject.units)}
    leg = relay.legs_of(numbers["n_c3"])[0]
    part = relay.switched(numbers["n_c3"], leg)
    assert not {"Add"} & {item.op_type for item in part.model.graph.node}
    assert "r0" in part.inputs or leg  # the skip connection comes from the base network
    del values


def test_work_of_units():
    subject, values, _ = relay_of("chain", "alone", "layer")
    shapes = all_shapes(subject, {name: array.shape for name, array in values.items()})
    found = dict(zip([unit.name for unit in subject.units], unit_macs(subject, shapes), strict=True))
    cells = SIZE * SIZE
    assert found == {
        "n_c0": cells * 4 * 27, "n_c1": cells * 4 * 9, "n_c2": cells * 16, "n_a": 0,
        "n_c3": cells // 4 * 24, "n_logits": cells * 50,
    }  # fmt: skip
