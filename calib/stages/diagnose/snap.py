"""Weights that a Q/DQ network holds as integers: are they the reference's, quantized? Then the reference's stand in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.stages.diagnose.onnxtrace import OnnxTrace
from calib.stages.diagnose.parameters import slot_name
from calib.stages.diagnose.prior import guess
from calib.stages.diagnose.quantizer import Quantizer
from calib.stages.diagnose.trace import Step, Trace

AGREE = 0.998
"""Share of the integers that must be within one of the quantized reference's."""


def snap_weights(reference: Trace, candidate: OnnxTrace, quantizers: Sequence[Quantizer]) -> dict[str, NDArray[Any]]:
    """Put the reference's weights where the candidate's are their quantization; changes ``candidate``.

    What differs then is no export fault: how well the grid suits the weights is the quantization's matter.

    Returns:
        float weights of each quantizer of constants, by the tensor it quantizes; the dequantized ones where the
        reference has no such weights.
    """
    stored = {item.tensor: item for item in quantizers if item.constant is not None}
    found = {name: item.constant for name, item in stored.items() if item.constant is not None}
    counterparts = guess(reference, candidate)
    steps = []
    for step in candidate.steps:
        changed = _snapped(step, reference, candidate, stored, counterparts, found)
        steps.append(changed)
    candidate.steps = tuple(steps)
    candidate.__dict__.pop("makers", None)
    candidate.__dict__.pop("readers", None)
    return found


def _snapped(
    step: Step,
    reference: Trace,
    candidate: OnnxTrace,
    stored: Mapping[str, Quantizer],
    counterparts: Mapping[str, str],
    found: dict[str, NDArray[Any]],
) -> Step:
    network = candidate.network
    if network is None:
        raise AssertionError(candidate.place)
    node = network.nodes[step.source]
    version = network.opsets.get(node.domain, 1)
    weights, coarse = dict(step.weights), dict(step.coarse)
    for slot, name in enumerate(node.inputs):
        item, operand = stored.get(name), slot_name(node, slot, version)
        if item is None or item.exact or operand not in weights:
            continue
        theirs = _counterpart(step, operand, reference, counterparts, weights[operand])
        if theirs is not None and is_quantization(item, theirs, weights[operand]):
            weights[operand] = candidate.frozen[name] = found[name] = theirs
        else:
            coarse[operand] = _precision(item, weights[operand])
    return replace(step, weights=weights, coarse=coarse) if weights or coarse else step


def _counterpart(
    step: Step, operand: str, reference: Trace, counterparts: Mapping[str, str], own: NDArray[Any]
) -> NDArray[Any] | None:
    for name in (counterparts.get(step.outputs[0], ""), step.outputs[0]):
        other = reference.makers.get(name)
        weights = None if other is None else other.weights.get(operand)
        if weights is not None and weights.shape == own.shape:
            return weights
    return None


def is_quantization(item: Quantizer, weights: NDArray[Any], dequantized: NDArray[Any]) -> bool:
    """Whether stored integers are these weights on their grid, cut off at its ends."""
    wanted = np.clip(item.integers(weights), item.low, item.high)
    return bool(np.mean(np.abs(wanted - item.integers(dequantized)) <= 1) >= AGREE)


def _precision(item: Quantizer, weights: NDArray[Any]) -> float:
    largest = float(np.abs(weights).max(initial=0.0))
    return 0.6 * float(item.scale.max()) / largest if largest else 1.0
