"""Compare two networks of an evaluation with each other, neither of them being its reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from calib.core.slices import Slice
from calib.stages.compare import Sampling, compare_networks
from calib.stages.describe import Json, Networks
from calib.types.progress import Progress


def compare_pair(
    networks: Networks, own: int, other: int, slices: Sequence[Slice], sampling: Sampling, progress: Progress
) -> Json:
    """Difference of one network to another, in points, with the intervals of the paired difference.

    Args:
        networks: the counts of an evaluation.
        own: place of the network.
        other: place of the one it is held against.
        slices: parts of the split.
        sampling: how intervals are drawn.
        progress: shows one task.

    Returns:
        ``{"model", "against", "miou": {"delta", "ci95", …}, "per_class": {CLASS: …}, "slices": {SLICE: …}}``.
    """
    chosen = _only(networks, (other, own))
    found = compare_networks(chosen, slices, sampling, 0, progress)[1]["vs_reference"]
    return {
        "model": networks.names[own],
        "against": networks.names[other],
        **{key: found[key] for key in ("miou", "per_class", "slices")},
    }


def _only(networks: Networks, places: Sequence[int]) -> Networks:
    """The counts of some of the networks."""
    return replace(
        networks,
        names=[networks.names[place] for place in places],
        counts=[networks.counts[place] for place in places],
        foreign=[networks.foreign[place] for place in places],
        ties_known=[networks.ties_known[place] for place in places],
    )
