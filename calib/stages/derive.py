"""Which tensors must be observed, and the statistics of those that follow from them.

A Relu's output need not leave the runtime: its statistics follow exactly from its input's. Fewer exposed tensors are
fewer broken fusions and less memory traffic.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from calib.core.graph import Activation, Derivation, Network
from calib.core.histogram import TensorAccumulator, concatenated, renamed
from calib.types.statistics import TensorStatistics


@dataclass(frozen=True)
class Observation:
    """A tensor to observe.

    Attributes:
        activation: the tensor.
        low: lower clipping bound to keep apart, None for none.
        high: upper clipping bound likewise.
    """

    activation: Activation
    low: float | None = None
    high: float | None = None

    def accumulator(self) -> TensorAccumulator:
        """A fresh accumulator for it."""
        return TensorAccumulator(self.activation.name, self.activation.channel_axis, self.low, self.high)


@dataclass(frozen=True)
class ObservationPlan:
    """How every activation gets its statistics.

    Attributes:
        observed: tensors to observe, by name, in network order.
        derived: the others, in network order.
        roots: for tensors that hold the same elements as an observed one, that one's name (an observed one is its own).
    """

    observed: Mapping[str, Observation]
    derived: tuple[Activation, ...]
    roots: Mapping[str, str]


def plan_observations(network: Network, excluded: Collection[str] = ()) -> ObservationPlan:
    """Decide which activations to observe.

    Args:
        network: the analysed network.
        excluded: activations that turned out not to be floats.
    """
    observed: dict[str, Observation] = {}
    derived: list[Activation] = []
    roots: dict[str, str] = {}
    for activation in network.activations:
        if activation.name in excluded:
            continue
        if _derivable(activation.derivation, observed, roots, {item.name for item in derived}):
            derived.append(activation)
            if activation.derivation is not None and activation.derivation.kind == "same":
                root = roots.get(activation.derivation.sources[0])
                if root is not None:
                    roots[activation.name] = root
        else:
            observed[activation.name] = Observation(activation)
            roots[activation.name] = activation.name
    return ObservationPlan(observed, tuple(derived), roots)


def _derivable(
    derivation: Derivation | None, observed: dict[str, Observation], roots: Mapping[str, str], derived: set[str]
) -> bool:
    """Whether it can be derived; a clipping bound is noted at the observed tensor it applies to."""
    if derivation is None or not all(source in observed or source in derived for source in derivation.sources):
        return False
    if derivation.kind in ("same", "concat"):
        return True
    root = roots.get(derivation.sources[0])
    if derivation.kind != "clip" or root is None:
        return False
    low = _joined_bound(observed[root].low, derivation.low, -1)
    high = _joined_bound(observed[root].high, derivation.high, +1)
    if low is _CONFLICT or high is _CONFLICT:
        return False
    observed[root] = Observation(observed[root].activation, low, high)  # type: ignore[arg-type]
    return True


_CONFLICT = object()


def _joined_bound(kept: float | None, wanted: float | None, side: int) -> object:
    """The bound to keep apart so that clipping at ``wanted`` stays exact; zero needs none."""
    if wanted is None or wanted == 0:
        return kept
    if wanted * side < 0 or kept not in (None, wanted):
        return _CONFLICT
    return wanted


def derive_all(
    plan: ObservationPlan, network: Network, accumulators: Mapping[str, TensorAccumulator]
) -> dict[str, TensorStatistics]:
    """Statistics of every activation, in network order."""
    done: dict[str, TensorStatistics] = {name: item.statistics() for name, item in accumulators.items()}
    for activation in plan.derived:
        done[activation.name] = _derived(activation, plan, accumulators, done)
    return {item.name: done[item.name] for item in network.activations if item.name in done}


def _derived(
    activation: Activation,
    plan: ObservationPlan,
    accumulators: Mapping[str, TensorAccumulator],
    done: Mapping[str, TensorStatistics],
) -> TensorStatistics:
    how = activation.derivation
    if how is None:
        raise AssertionError(activation.name)
    source = how.sources[0]
    if how.kind == "clip":
        clipped = accumulators[plan.roots[source]].clipped(activation.name, how.low, how.high)
        return renamed(clipped, activation.name, activation.channel_axis)
    if how.kind == "same":
        return renamed(done[source], activation.name, activation.channel_axis)
    parts = [done[name] for name in how.sources]
    return concatenated(activation.name, parts, activation.channel_axis, along=how.join_channels)
