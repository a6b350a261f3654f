"""Put a collector together for a network and a data set."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from calib.core.segments import concrete_shapes, cut, tensor_bytes
from calib.edges.feeds import FeedReader
from calib.edges.runners.ort import OrtChain, Provider
from calib.jobs.build.sources import Source
from calib.stages.batches import batch_length, join_images
from calib.stages.collect import Collector, NonFinite
from calib.stages.derive import ObservationPlan, plan_observations
from calib.stages.inputs import InputBinding
from calib.types.data import Dataset

SEGMENT_BYTES = 128 << 20
"""Activations of one image that are in memory at once, at most, wherever the network can be cut."""


def make_collector(
    source: Source,
    dataset: Dataset,
    bindings: Sequence[InputBinding],
    *,
    place: str,
    provider: Provider = "cpu",
    batch_size: int = 1,
    non_finite: NonFinite = "stop",
) -> Collector:
    """Make what collects statistics of a network.

    Args:
        source: the network.
        dataset: the images.
        bindings: what feeds each input.
        place: what to call the network in messages.
        provider: where it runs.
        batch_size: images a run, where the network leaves it open.
        non_finite: ``stop`` at NaN and infinity or ``skip`` such values.

    Raises:
        ModelError: the runtime does not accept the network.
        UsageError: the network's batch is fixed at another length.
    """
    excluded: set[str] = set()
    while True:
        plan = plan_observations(source.network, excluded)
        # What padding makes of infinity may spread, as in the runtime's own networks: no matter where it is an error.
        runner = _runner(source, plan, bindings, place, provider, blocks=non_finite == "stop")
        others = set(runner.outputs) - set(runner.float_outputs)
        if not others:
            break
        excluded |= others  # of a type that only the runtime knows, behind custom operators
    rows, fill = batch_length(bindings, batch_size)
    return Collector(
        source.network,
        plan,
        runner,
        FeedReader(dataset, bindings).load,
        join=partial(join_images, bindings),
        rows=rows,
        fill=fill,
        non_finite=non_finite,
    )


def _runner(
    source: Source,
    plan: ObservationPlan,
    bindings: Sequence[InputBinding],
    place: str,
    provider: Provider,
    *,
    blocks: bool,
) -> OrtChain:
    names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
    usual = {item.tensor.name: item.usual_shape() for item in bindings}
    shapes = concrete_shapes(source.model, {name: shape for name, shape in usual.items() if shape is not None})
    budget = SEGMENT_BYTES if provider == "cpu" else sys.maxsize
    segments = cut(source.model, source.network, names, tensor_bytes(source.network, shapes), budget)
    return OrtChain(segments, place, provider, blocks=blocks)
