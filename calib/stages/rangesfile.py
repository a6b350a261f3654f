"""``ranges.json``: every tensor with every calibrator's range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from calib.core.graph import Activation, Derivation, Network
from calib.stages.ranges import BoundCalibrator
from calib.types.statistics import DynamicRange, TensorStatistics

SCHEMA = 1


def ranges_document(
    network: Network,
    statistics: Mapping[str, TensorStatistics],
    ranges: Mapping[str, Mapping[str, DynamicRange]],
    calibrators: Sequence[BoundCalibrator],
) -> dict[str, Any]:
    """Describe every calibrated tensor in network order.

    Returns:
        ``{"schema", "calibrators": [{"name", "spec", "parameters"}], "tensors": [{"name", "op", "count", "nonfinite",
        "minimum", "maximum", "derived_from", "ranges": {CALIBRATOR: {"amax", "clipped", "objective"}}}]}``; extrema of
        a tensor that was never observed are null.
    """
    return {
        "schema": SCHEMA,
        "calibrators": [
            {"name": item.label, "spec": str(item.spec), "parameters": dict(item.arguments)} for item in calibrators
        ],
        "tensors": [
            _tensor(activation, statistics[activation.name], ranges)
            for activation in network.activations
            if activation.name in statistics
        ],
    }


def _tensor(
    activation: Activation, statistics: TensorStatistics, ranges: Mapping[str, Mapping[str, DynamicRange]]
) -> dict[str, Any]:
    return {
        "name": activation.name,
        "op": activation.op_type,
        "count": statistics.count,
        "nonfinite": statistics.nonfinite,
        "minimum": statistics.minimum if statistics.count else None,
        "maximum": statistics.maximum if statistics.count else None,
        "derived_from": None if activation.derivation is None else describe_derivation(activation.derivation),
        "ranges": {
            label: {"amax": found[activation.name].amax, "clipped": found[activation.name].clipped,
                    "objective": found[activation.name].objective}
            for label, found in ranges.items()
        },
    }  # fmt: skip


def describe_derivation(derivation: Derivation) -> str:
    """Say in words how a tensor's statistics follow from others'."""
    sources = ", ".join(derivation.sources)
    if derivation.kind == "clip":
        low = "-inf" if derivation.low is None else f"{derivation.low:g}"
        high = "inf" if derivation.high is None else f"{derivation.high:g}"
        return f"{sources} clipped to [{low}, {high}]"
    return f"the elements of {sources}"
