"""Which biases are added to sums that come in whole steps, and can therefore be rounded to these steps."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from calib.core.graph import Network, Node, Use
from calib.core.plan import QuantizationPlan, WeightQuantizer

BIAS = 2
"""Input slot of a layer's bias."""


@dataclass(frozen=True)
class Grid:
    """The quantizers, by name, whose scales multiply to the step of the sums that a bias is added to."""

    input: str
    weight: str


def quantizer_name(pair: WeightQuantizer) -> str:
    """Name a weight's quantizer: by the tensor, and by the axis where one tensor may be read along two."""
    return pair.tensor if pair.axis is None else f"{pair.tensor}@{pair.axis}"


def find_grids(network: Network, plan: QuantizationPlan, trained: Collection[str]) -> dict[str, Grid]:
    """Find the step of each bias that one quantized layer alone adds.

    Args:
        network: the network that the plan was made from.
        plan: where the quantizers are.
        trained: parameters.

    Returns:
        by the bias's name.
    """
    inputs = {use: pair.tensor for pair in plan.activations for use in pair.uses}
    weights = {use: pair for pair in plan.weights for use in pair.uses}
    found: dict[str, Grid] = {}
    for node in network.nodes:
        name, one, other = node.input(BIAS), inputs.get(Use(node.index, 0)), weights.get(Use(node.index, 1))
        if one is None or other is None or name not in trained or len(network.consumers.get(name, ())) != 1:
            continue
        if _has_one_step_a_channel(node, other) and other.tensor in trained:
            found[name] = Grid(one, quantizer_name(other))
    return found


def _has_one_step_a_channel(node: Node, weight: WeightQuantizer) -> bool:
    """Whether the weight's scales lie along the bias: one for all, or one an output channel."""
    if node.op_type == "Gemm":
        return node.attributes.get("alpha", 1.0) == 1 and node.attributes.get("beta", 1.0) == 1
    if weight.axis is None:
        return node.op_type in {"Conv", "ConvTranspose"}
    single = node.attributes.get("group", 1) == 1
    return node.op_type == "Conv" or (node.op_type == "ConvTranspose" and weight.axis == 1 and single)
