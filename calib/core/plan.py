"""A quantization plan: where Q/DQ pairs go, on which range, and what was decided for every node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from calib.core.graph import Use

Target = Literal["trt10", "trt11", "ort"]
TARGETS: tuple[Target, ...] = ("trt10", "trt11", "ort")
ConvTransposeMode = Literal["per-tensor", "axis", "float"]
Status = Literal["int8", "fused", "follows", "float"]

REASONS: Mapping[str, str] = {
    "quantized": "every operand has a Q/DQ pair",
    "residual": "the shortcut side has a Q/DQ pair; the other side fuses with its convolution",
    "fused": "TensorRT fuses it into the INT8 layer before it",
    "moves_data": "moves values without computing; runs in the type of its neighbours",
    "logits": "last layer before a graph output; its rounding errors go straight into the classes",
    "gate": "squeeze-and-excitation gate: one position per image, nothing to gain and much to lose",
    "global_context": "works on globally pooled vectors: nothing to gain",
    "excluded": "kept in float as asked",
    "deconv_float": "transposed convolutions kept in float as asked",
    "grouped_deconv": "TensorRT has no INT8 kernel for grouped transposed convolutions",
    "no_range": "an operand has no range: never observed, or the calibrator left it out",
    "unreadable_weight": "the weight is computed by nodes whose value cannot be folded here",
    "element_type": "operands are not float32, float16 or bfloat16",
    "opset": "the model's opset has no QuantizeLinear for this type",
    "matrix_vector": "an operand has no channel axis to multiply along",
    "no_layer_to_fuse": "neither side is the output of a layer that could fuse with the addition",
    "layer_in_float": "the layer that would fuse with the addition is kept in float",
    "broadcast": "the sides differ in shape: no residual connection",
    "average_pool": "averaging does not commute with Q/DQ; a pair after it serves the next layer",
    "resize": "interpolation runs in float; the pair stands after it, before the next layer",
    "softmax": "exponentials need more than 8 bits",
    "normalisation": "statistics need more than 8 bits",
    "pointwise": "no INT8 layer before it to fuse into",
    "elementwise": "elementwise arithmetic on two tensors runs in float",
    "reduction": "sums need more than 8 bits",
    "recurrent": "TensorRT has no INT8 kernel for recurrent layers",
    "control_flow": "tensors inside subgraphs are not calibrated",
    "custom": "custom operator: whether it takes INT8 is its plugin's affair",
    "no_int8_path": "TensorRT has no INT8 kernel for it",
}
"""Why a node is what it is, by reason code."""


@dataclass(frozen=True)
class PlacementOptions:
    """What the user may choose.

    Attributes:
        per_channel: one scale per output channel of a weight (needs opset 13).
        logits: quantize the layers before the graph outputs too.
        gates: quantize the layers of squeeze-and-excitation gates and other pooled vectors too.
        tie_concat: give a concatenation and its quantized inputs one range.
        conv_transpose: one scale a weight, one per index of an axis, or float.
        conv_transpose_axis: weight axis of ``axis`` mode; None takes that of the output channels.
        dedicated: a Q/DQ pair for every consumer instead of one per tensor.
        float_nodes: names (or, unnamed, labels) of nodes to keep in float.
    """

    per_channel: bool = True
    logits: bool = False
    gates: bool = False
    tie_concat: bool = False
    conv_transpose: ConvTransposeMode = "per-tensor"
    conv_transpose_axis: Literal[0, 1] | None = None
    dedicated: bool = False
    float_nodes: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ActivationQuantizer:
    """A Q/DQ pair on an activation, per tensor.

    Attributes:
        tensor: the float tensor it reads.
        amax: half-width of its range; 0 for a dead tensor, which gets the floor.
        elem_type: type of tensor and scale.
        uses: the inputs that read the quantized values instead.
    """

    tensor: str
    amax: float
    elem_type: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class WeightQuantizer:
    """A Q/DQ pair on a constant.

    Attributes:
        tensor: the constant it reads.
        axis: axis of the scales, None for a single one.
        elem_type: type of tensor and scales.
        uses: the inputs that read the quantized values instead.
    """

    tensor: str
    axis: int | None
    elem_type: str
    uses: tuple[Use, ...]


@dataclass(frozen=True)
class Decision:
    """What was decided for a node.

    Attributes:
        node: index in the graph.
        label: its name, or operator and output where it has none.
        op_type: operator.
        status: ``int8``, ``fused`` into an INT8 layer, ``follows`` its neighbours, or ``float``.
        reason: key of :data:`REASONS`.
        detail: the tensor or node the reason is about, or empty.
    """

    node: int
    label: str
    op_type: str
    status: Status
    reason: str
    detail: str = ""

    @property
    def text(self) -> str:
        """The reason for people."""
        return REASONS[self.reason] + (f" ({self.detail})" if self.detail else "")


@dataclass(frozen=True)
class ConcatInput:
    """What one input of a concatenation loses by sharing the scale of the whole.

    Attributes:
        node: label of the Concat.
        tensor: its input.
        amax: the input's own range.
        shared: range of the concatenation.
        bits: ``log2(shared / amax)``: bits of resolution lost; infinite for a dead input.
    """

    node: str
    tensor: str
    amax: float
    shared: float
    bits: float


@dataclass(frozen=True)
class QuantizationPlan:
    """Where Q/DQ pairs go.

    Attributes:
        target: what will read the model.
        options: the choices it was made with.
        activations: pairs on activations, in network order.
        weights: pairs on constants, in network order.
        decisions: one a node that works on activations, in network order.
        concats: concatenation inputs that lose at least a bit, in network order.
        per_channel: whether weights have a scale per channel; False when the opset does not allow it.
    """

    target: Target
    options: PlacementOptions
    activations: tuple[ActivationQuantizer, ...]
    weights: tuple[WeightQuantizer, ...]
    decisions: tuple[Decision, ...]
    concats: tuple[ConcatInput, ...] = field(default=())
    per_channel: bool = True

    def decision(self, label: str) -> Decision:
        """Find the decision for a node by its label."""
        return next(item for item in self.decisions if item.label == label)

    def with_status(self, status: Status) -> tuple[Decision, ...]:
        """List the decisions of one status."""
        return tuple(item for item in self.decisions if item.status == status)

    def counts(self) -> dict[str, int]:
        """Count decisions by ``status/reason``, most frequent first."""
        return dict(Counter(f"{item.status}/{item.reason}" for item in self.decisions).most_common())
