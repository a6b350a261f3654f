"""From a float network and ranges to a network that can be trained; and from the trained one to its Q/DQ network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import onnx

from calib.core.graph import analyse
from calib.core.plan import PlacementOptions, QuantizationPlan, Target
from calib.errors import UsageError
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.stages.qdq import QdqResult, quantize_model, raise_opset, unreadable_weights


def plan_model(
    model: onnx.ModelProto, amax: Mapping[str, float], target: Target, options: PlacementOptions = DEFAULTS
) -> tuple[onnx.ModelProto, QuantizationPlan]:
    """Decide where fake quantization goes, exactly as the Q/DQ writer decides where its pairs go.

    Args:
        model: the float network.
        amax: range by tensor.
        target: whose placement rules apply.
        options: placement choices.

    Returns:
        the network with its operator set raised as the writer raises it, and the plan, made from that.

    Raises:
        UsageError: nothing would be quantized.
    """
    raised, _ = raise_opset(model, options)
    network = analyse(raised)
    plan = plan_quantization(network, amax, target, options, unreadable_weights(raised, network))
    if not plan.activations:
        known = {item.name for item in network.activations}
        raise UsageError(
            "ranges",
            expected="ranges of this network's tensors",
            got=f"{len(known & set(amax))} of {len(amax)} ranges are of a tensor it has",
            remedy="calibrate this very network, or pass a build folder, whose tensors are matched by structure",
        )
    return raised, plan


def missing_ranges(model: onnx.ModelProto, amax: Mapping[str, float], target: Target) -> tuple[str, ...]:
    """Name the tensors that would be quantized if they had a range."""
    raised, _ = raise_opset(model, DEFAULTS)
    network = analyse(raised)
    every = {item.name: 1.0 for item in network.activations}
    wanted = plan_quantization(network, every, target, DEFAULTS, unreadable_weights(raised, network))
    return tuple(dict.fromkeys(pair.tensor for pair in wanted.activations if pair.tensor not in amax))


def quantize_trained(
    origin: onnx.ModelProto, trained: Any, start: Mapping[str, float], target: Target, options: PlacementOptions
) -> tuple[QdqResult, dict[str, float]]:
    """Make the Q/DQ network of trained weights and learnt ranges, by the writer that makes those of PTQ.

    Args:
        origin: the float network as given.
        trained: an ``OnnxModule`` made from it.
        start: range of every tensor at the start; holds for those that are not quantized.
        target: whose placement rules apply.
        options: placement choices, as in training.

    Returns:
        the Q/DQ network, and the range of every tensor.
    """
    from calib.edges.qat.module import with_values

    learnt = trained.activation_amax()
    amax = {name: learnt.get(name, value) for name, value in start.items() if math.isfinite(value)}
    model = with_values(origin, trained.trained_values())
    return quantize_model(model, amax, target, options, trained.weight_ranges()), amax
