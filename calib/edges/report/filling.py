"""From what the stages answer to the sections of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from calib.core.graph import Network
from calib.core.plan import REASONS
from calib.edges.report.model import (
    CONSTANT,
    DERIVED,
    FLOORED,
    AmountSection,
    ConcatLoss,
    DeadChannels,
    Decision,
    Distribution,
    PlacementSection,
    TensorRow,
)
from calib.stages.amount import TOLERANCE_BITS, Settling
from calib.stages.cachefile import Coverage
from calib.stages.qdq import QdqResult
from calib.stages.rangesfile import describe_derivation
from calib.types.statistics import DynamicRange, TensorStatistics


def distributions_of(found: Mapping[str, Mapping[str, Any]]) -> tuple[Distribution, ...]:
    """Read distributions of the form ``{"light": {"edges": […], "population": […], "selection": […]}}``.

    Args:
        found: by name; numeric ones have ``edges`` (one more than bins), named ones ``labels`` (or ``names``). A
            heading as ``name`` and a ``unit`` may be given.
    """
    return tuple(_distribution(name, values) for name, values in found.items())


def _distribution(name: str, values: Mapping[str, Any]) -> Distribution:
    return Distribution(
        str(values.get("name", name.replace("_", " ").capitalize())),
        tuple(float(value) for value in values["population"]),
        tuple(float(value) for value in values["selection"]),
        tuple(float(edge) for edge in values.get("edges", ())),
        tuple(str(label) for label in values.get("labels", values.get("names", ()))),
        str(values.get("unit", "")),
    )


def tensor_rows(
    network: Network,
    statistics: Mapping[str, TensorStatistics],
    ranges: Mapping[str, Mapping[str, DynamicRange]],
    coverage: Coverage | None = None,
) -> tuple[TensorRow, ...]:
    """List the network's activations in order, with every calibrator's range.

    Args:
        network: the analysed network.
        statistics: by tensor name; activations without are left out.
        ranges: calibrator to ranges by tensor name.
        coverage: account of the release cache, for tensors whose scale was floored.
    """
    floored = frozenset((*coverage.dead, *coverage.floored)) if coverage else frozenset()
    rows = []
    for activation in network.activations:
        if activation.name not in statistics:
            continue
        derivation = activation.derivation
        item = statistics[activation.name]
        constant = item.count > 1 and item.minimum == item.maximum != 0
        flags = [DERIVED] * (derivation is not None) + [FLOORED] * (activation.name in floored) + [CONSTANT] * constant
        own = {label: found[activation.name] for label, found in ranges.items() if activation.name in found}
        note = "" if derivation is None else f"Derived exactly: {describe_derivation(derivation)}."
        rows.append(TensorRow.from_statistics(item, activation.op_type, own, tuple(flags), note))
    return tuple(rows)


def placement_section(result: QdqResult | None, coverage: Coverage | None) -> PlacementSection:
    """Join the account of the Q/DQ writer with that of the cache writer; either may be absent."""
    exempt = _exempt(coverage) if coverage else {}
    missing = dict.fromkeys(coverage.never_observed, "never observed") if coverage else {}
    covered = len(coverage.covered) if coverage else None
    if result is None:
        return PlacementSection(covered=covered, missing=missing, exempt=exempt)
    plan = result.plan
    return PlacementSection(
        tuple(Decision(it.label, it.op_type, it.status, REASONS[it.reason], it.detail) for it in plan.decisions),
        plan.target,
        result.opset,
        tuple(ConcatLoss(it.node, it.tensor, it.amax, it.shared, it.bits) for it in plan.concats),
        tuple(DeadChannels(name, channels) for name, channels in result.dead_channels.items()),
        covered,
        missing,
        exempt,
    )


def _exempt(coverage: Coverage) -> dict[str, str]:
    unnamed = dict.fromkeys(coverage.unnamed_constants, "constant operand that TensorRT names itself")
    return {
        **{item.name or f"unnamed output of {item.op_type}": str(item.reason) for item in coverage.not_covered},
        **unnamed,
    }


def amount_section(settling: Settling, chosen: int) -> AmountSection:
    """Show how the ranges settled up to the ``chosen`` number of images."""
    outcome = (
        f"Every calibrator stayed within {TOLERANCE_BITS:g} bits at the last two counts."
        if settling.settled
        else f"The ranges were still moving by more than {TOLERANCE_BITS:g} bits when the images ran out."
    )
    unit = "bits, 95th percentile over tensors"
    return AmountSection(settling.images, settling.change, TOLERANCE_BITS, chosen, unit, outcome)
