"""Put a collector together for a network and a data set."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from calib.core.expose import expose
from calib.edges.feeds import FeedReader
from calib.edges.runners.ort import OrtRunner, Provider
from calib.jobs.build.sources import Source
from calib.stages.batches import batch_length, join_images
from calib.stages.collect import Collector, NonFinite
from calib.stages.derive import ObservationPlan, plan_observations
from calib.stages.inputs import InputBinding
from calib.types.data import Dataset


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
    plan = plan_observations(source.network)
    runner = _runner(source, plan, place, provider)
    others = set(runner.outputs) - set(runner.float_outputs)
    if others:  # types behind custom operators, which only the runtime knows
        plan = plan_observations(source.network, others)
        runner = _runner(source, plan, place, provider)
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


def _runner(source: Source, plan: ObservationPlan, place: str, provider: Provider) -> OrtRunner:
    names = [name for name, item in plan.observed.items() if item.activation.producer is not None]
    return OrtRunner(expose(source.model, names), place, provider)
