"""Cuts: never through a layer and what is fused with it, never through what cannot be handed on, and the cheapest."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from calib.core.graph import analyse
from calib.core.sensitivity import cutting
from calib.core.sensitivity.cutting import Line, _costs, choose_cuts, handed_on, places_to_cut
from tests.graphs import model, node, weight


def line_of(network, costs, starts, reach) -> Line:
    reads = [[name for name in network.nodes[i].inputs if name not in network.constants] for i in network.order]
    return Line(network.order, reads, reach, starts, costs, [0.0] * len(network.order), [0] * len(network.order))


@pytest.fixture
def network():
    nodes = [node("Conv", "image,w", "t0")]
    nodes += [
        node("Conv" if place % 2 else "Relu", f"t{place - 1}" + ",w" * (place % 2), f"t{place}")
        for place in range(1, 9)
    ]
    return analyse(model(nodes, {"image": [1, 3, 8, 8]}, ["t8"], {"w": weight(3, 3, 1, 1)}))


def test_places(network):
    line = line_of(network, [1.0] * 9, [0] * 9, [0] * 9)
    alive = handed_on(line, network)
    assert alive[0] == {"image"}
    assert alive[3] == {"t2"}
    assert alive[9] == set()
    kinds = {f"t{place}" for place in range(9)} - {"t4"}
    assert places_to_cut(line, network, alive, kinds, {}) == [0, 1, 3, 7, 9]  # not Conv | Relu, not t4


def test_the_cheapest_cuts_are_chosen(network):
    rng = np.random.default_rng(4)
    for _ in range(20):
        costs = rng.uniform(1e3, 1e6, 9).tolist()
        units = [int(place) for place in np.flatnonzero(rng.random(9) < 0.6)]
        starts = [sum(1 << number for number, unit in enumerate(units) if unit == place) for place in range(9)]
        reach = [sum(1 << number for number, unit in enumerate(units) if unit <= place) for place in range(9)]
        setup = rng.uniform(0, 2e5, 9).tolist()
        line = Line(network.order, line_of(network, costs, starts, reach).reads, reach, starts, costs, setup, [0] * 9)
        alive = handed_on(line, network)
        sizes = {f"t{place}": int(rng.integers(100, 200_000)) for place in range(9)}
        places = [0, 2, 3, 5, 7, 9]
        found = choose_cuts(line, places, alive, sizes)
        inside = itertools.chain.from_iterable(itertools.combinations(places[1:-1], n) for n in range(len(places) - 1))
        best = min(total(line, [0, *cuts, 9], alive, sizes) for cuts in inside)
        assert total(line, found, alive, sizes) == pytest.approx(best)


def test_a_leg_holds_no_more_than_fits_unless_it_cannot_be_cut(network, monkeypatch):
    monkeypatch.setattr(cutting, "TAP_BYTES", 100)
    everywhere = [(1 << 9) - 1] * 9
    plain = line_of(network, [1.0] * 9, [1 << place for place in range(9)], everywhere)
    line = replace(plain, taps=[60, 0, 60, 0, 150, 0, 40, 0, 60])
    alive = handed_on(line, network)
    assert choose_cuts(line, [0, 2, 3, 5, 7, 9], alive, {}) == [0, 2, 3, 5, 9]
    assert choose_cuts(plain, [0, 2, 3, 5, 7, 9], alive, {}) == [0, 9]


def total(line, cuts, alive, sizes) -> float:
    return sum(_costs(line, a, [b], alive, sizes)[0][1] for a, b in itertools.pairwise(cuts))
