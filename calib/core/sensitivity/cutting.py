"""Where to cut a network into legs, so that running each unit alone repeats as little as possible.

A unit changes what lies behind it and nothing else. Run leg by leg, from the tensors that the float network handed on,
a unit costs the rest of its own leg and every later leg that it reaches. Where a leg begins and ends is chosen by
dynamic programming over the places between nodes; the cost of a leg is a sum over the units that run through it, so the
best cuts before a place do not depend on those behind it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from calib.core.graph import Network
from calib.core.roles import COMPUTE
from calib.core.segments import made_by

RUN_NANOSECONDS = 120_000.0
"""Of starting a run of its own, whatever is in it."""
NANOSECONDS_A_BYTE = 0.25
"""Of handing a tensor on: it is written, and brought into the layout that the next leg wants."""
SETUP_NANOSECONDS = 10_000.0
"""Of loading a node into one more session, spread over the images it will run on."""
SETUP_NANOSECONDS_A_BYTE = 0.1
"""Of copying a constant into one more session, likewise; it also stands for the memory that takes."""
TAP_BYTES = 192 << 20
"""Of the tensors that the units of one leg start from, at most, wherever it can be cut: they are in memory together."""
MOST_PLACES = 400
"""Places for a cut that are considered; of more, those that hand the least on."""
FUSING = frozenset(
    {"Add", "BatchNormalization", "Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "PRelu", "Relu"}
    | {"Selu", "Sigmoid", "Softplus", "Sub", "Tanh"}
)
"""Operators that a runtime fuses into the layer before them."""


@dataclass(frozen=True)
class Line:
    """The nodes of a network in a row, with what a cut needs to know of each.

    Attributes:
        order: node indices, topological.
        reads: of each place, tensors that its node, or a unit at it, takes from nodes before.
        reach: of each place, the units that change what its node makes, as a bit mask.
        starts: of each place, the units that switch an operand there, as a bit mask.
        cost: of each place, nanoseconds.
        setup: of each place, nanoseconds that one more session with this node costs a run.
        taps: of each place, bytes that the units at it start from.
    """

    order: Sequence[int]
    reads: Sequence[Collection[str]]
    reach: Sequence[int]
    starts: Sequence[int]
    cost: Sequence[float]
    setup: Sequence[float]
    taps: Sequence[int]


def handed_on(line: Line, network: Network) -> list[frozenset[str]]:
    """Tensors that a cut before each place hands on, one set a place and one for the end, which is empty."""
    last = {name: place for place, names in enumerate(line.reads) for name in names}
    alive: set[str] = {item.name for item in network.inputs if item.name in last}
    found = []
    for place, index in enumerate(line.order):
        alive = {name for name in alive if last[name] >= place}
        found.append(frozenset(alive))
        alive.update(name for name in made_by(network, index) if name in last)
    return [*found, frozenset()]


def places_to_cut(
    line: Line, network: Network, alive: Sequence[frozenset[str]], kinds: Collection[str], sizes: Mapping[str, int]
) -> list[int]:
    """Places where a cut is possible and parts no layer from what is fused with it; the start and the end included."""
    inside = [
        place
        for place in range(1, len(line.order))
        if all(name in kinds and not _fuses(name, network) for name in alive[place])
    ]
    if len(inside) > MOST_PLACES:
        weight = {place: sum(sizes.get(name, 0) for name in alive[place]) for place in inside}
        inside = sorted(sorted(inside, key=lambda place: (weight[place], place))[:MOST_PLACES])
    return [0, *inside, len(line.order)]


def choose_cuts(
    line: Line, places: Sequence[int], alive: Sequence[frozenset[str]], sizes: Mapping[str, int]
) -> list[int]:
    """Choose the cuts with the least estimated time over all units.

    Args:
        line: the network.
        places: where a cut may lie, the start and the end included.
        alive: what a cut before each place hands on.
        sizes: bytes of each tensor.

    Returns:
        the places taken, the start and the end included.
    """
    best: dict[int, tuple[float, int]] = {places[0]: (0.0, places[0])}
    for number, start in enumerate(places[:-1]):
        if start not in best:
            continue
        base = best[start][0]
        for end, cost in _costs(line, start, places[number + 1 :], alive, sizes):
            if base + cost < best.get(end, (math.inf, 0))[0]:
                best[end] = (base + cost, start)
    cuts = [places[-1]]
    while cuts[-1] != places[0]:
        cuts.append(best[cuts[-1]][1])
    return cuts[::-1]


def _costs(
    line: Line, start: int, ends: Sequence[int], alive: Sequence[frozenset[str]], sizes: Mapping[str, int]
) -> list[tuple[int, float]]:
    """Time of a leg from ``start`` to each of ``ends``, over all units; what the leg only passes on costs nothing.

    Legs that hold too much are left out, all but the shortest.
    """
    found: list[tuple[int, float]] = []
    whole, own, local, seen, held = 0.0, 0.0, 0, 0, 0
    wanted = iter(ends)
    end = next(wanted)
    for place in range(start, len(line.order)):
        held += line.taps[place]
        if found and held > TAP_BYTES:
            break
        local |= line.starts[place]
        seen |= line.reach[place]
        whole += line.cost[place]
        own += (line.cost[place] + line.setup[place]) * (line.reach[place] & local).bit_count()
        if place + 1 == end:
            through = (seen & ~local).bit_count()
            made = sum(sizes.get(name, 0) for name in alive[end] - alive[start])
            handover = RUN_NANOSECONDS + NANOSECONDS_A_BYTE * made
            found.append((end, own + through * whole + (through + local.bit_count()) * handover))
            end = next(wanted, -1)
    return found


def _fuses(name: str, network: Network) -> bool:
    """Whether a tensor goes from a layer into the one operator that is fused with it."""
    maker, uses = network.producer(name), network.consumers.get(name, ())
    return (
        maker is not None
        and maker.op_type in COMPUTE
        and len(uses) == 1
        and network.nodes[uses[0].node].op_type in FUSING
    )
