"""Status of the nodes that carry no Q/DQ of their own: fused, following, or float, and why."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from calib.core.graph import Network, Node
from calib.core.plan import Decision, Status
from calib.core.roles import Roles

MOVES_DATA = frozenset(
    {
        "BatchToSpace", "Cast", "Concat", "DepthToSpace", "Dropout", "Expand", "Flatten", "Gather", "GatherElements",
        "GatherND", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile",
        "Transpose", "Unsqueeze",
    }
)  # fmt: skip
FUSIBLE = frozenset(
    {
        "BatchNormalization", "Clip", "Elu", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Mish", "PRelu", "Relu",
        "Selu", "Sigmoid", "Softplus", "Swish", "Tanh", "ThresholdedRelu",
    }
)  # fmt: skip
FIXED_REASONS: Mapping[str, str] = {
    "AveragePool": "average_pool", "GlobalAveragePool": "average_pool", "LpPool": "average_pool",
    "GlobalLpPool": "average_pool", "GlobalMaxPool": "reduction", "Resize": "resize", "Upsample": "resize",
    "GridSample": "resize", "Softmax": "softmax", "LogSoftmax": "softmax", "Hardmax": "softmax",
    "InstanceNormalization": "normalisation", "LayerNormalization": "normalisation",
    "GroupNormalization": "normalisation", "LpNormalization": "normalisation", "LRN": "normalisation",
    "RMSNormalization": "normalisation", "MeanVarianceNormalization": "normalisation", "LSTM": "recurrent",
    "GRU": "recurrent", "RNN": "recurrent", "If": "control_flow", "Loop": "control_flow", "Scan": "control_flow",
    "ArgMax": "reduction", "ArgMin": "reduction", "TopK": "reduction", "CumSum": "reduction",
}  # fmt: skip
ELEMENTWISE = frozenset({"Add", "Div", "Max", "Mean", "Min", "Mod", "Mul", "Pow", "Sub", "Sum", "Where"})
POINTWISE = frozenset(
    {
        "Abs", "Ceil", "Celu", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Round", "Sign", "Sin",
        "Softsign", "Sqrt",
    }
)  # fmt: skip


def follower_decision(node: Node, network: Network, roles: Roles, int8: Collection[int]) -> Decision:
    """Decide a node that is neither a layer nor a quantized addition.

    Args:
        node: the node; at least one of its outputs is an activation.
        network: its network.
        roles: the parts of its nodes.
        int8: indices of the nodes that run in INT8 so far, fused ones included; in network order.
    """
    status, reason, detail = _outcome(node, network, roles, int8)
    return Decision(node.index, node.label, node.op_type, status, reason, detail)


def _outcome(node: Node, network: Network, roles: Roles, int8: Collection[int]) -> tuple[Status, str, str]:
    if node.domain:
        return "float", "custom", node.domain
    if node.index in roles.gates or node.index in roles.context:
        return "float", "gate" if node.index in roles.gates else "global_context", ""
    if node.op_type in MOVES_DATA:
        return "follows", "moves_data", ""
    if node.op_type in FUSIBLE or node.op_type in ELEMENTWISE:
        layer = _fuses_into(node, network, int8)
        if layer is not None:
            return "fused", "fused", layer.label
    return _float(node, network)


def _fuses_into(node: Node, network: Network, int8: Collection[int]) -> Node | None:
    """Find the INT8 node behind which this one fuses: an activation, a bias or scale, or the Mul of ``x * f(x)``."""
    sides = [name for name in node.inputs if name and name not in network.constants]
    makers = [network.producer(name) for name in dict.fromkeys(sides)]
    inside = [maker for maker in makers if maker is not None and maker.index in int8]
    if len(inside) < len(makers) or not inside:
        return None
    if len(inside) == 1:
        return inside[0]
    gated = any(other.op_type in FUSIBLE and other.input(0) in sides for other in inside)
    return inside[0] if node.op_type == "Mul" and len(inside) == 2 and gated else None


def _float(node: Node, network: Network) -> tuple[Status, str, str]:
    if node.op_type in FIXED_REASONS:
        return "float", FIXED_REASONS[node.op_type], ""
    if node.op_type == "BatchNormalization":
        return "float", "normalisation", ""
    if node.op_type.startswith("Reduce"):
        return "float", "reduction", ""
    if node.op_type in ELEMENTWISE:
        alone = sum(bool(name) and name not in network.constants for name in node.inputs) < 2
        return "float", "pointwise" if alone else "elementwise", ""
    return "float", "pointwise" if node.op_type in POINTWISE | FUSIBLE else "no_int8_path", ""
