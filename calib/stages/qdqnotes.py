"""What a user should know of a Q/DQ model: one note a finding, for people and for machines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from calib.core.graph import Network
from calib.core.plan import REASONS, ConcatInput, Decision, QuantizationPlan
from calib.core.roles import COMPUTE
from calib.stages.foldnorms import FoldedNorm

CONCAT_RATIO = 16.0
"""Concatenation inputs whose ranges differ by more than this deserve a warning: 4 of 8 bits are lost."""
VECTORS = frozenset({"gate", "global_context"})
ADDITION_REASONS = frozenset(
    {"broadcast", "element_type", "excluded", "layer_in_float", "no_layer_to_fuse", "no_range", "opset"}
)


@dataclass(frozen=True)
class Note:
    """One finding.

    Attributes:
        code: kind, for machines.
        place: tensor or node it is about, ``model`` for the whole.
        text: one line for people.
    """

    code: str
    place: str
    text: str


def notes_of(
    plan: QuantizationPlan,
    network: Network,
    ranges: Mapping[str, float],
    dead_channels: Mapping[str, tuple[int, ...]],
    *,
    opset: tuple[int, int],
    fallback: str,
    folded: Sequence[FoldedNorm] = (),
    fixed: Sequence[str] = (),
) -> tuple[Note, ...]:
    """Collect the findings on a written model.

    Args:
        plan: the plan it was written from.
        network: analysis of the float model, opset raised.
        ranges: amax by tensor name.
        dead_channels: all-zero channels by weight.
        opset: operator set before and after.
        fallback: why the opset could not be raised for per-channel scales; empty when it could or need not.
        folded: batch normalisations that were folded into layers.
        fixed: initialisers that were listed as inputs and are no more.
    """
    return (
        *_opset_notes(plan, opset, fallback),
        *_fold_notes(folded),
        *_input_notes(fixed),
        *_dead_notes(plan, dead_channels),
        *_layer_notes(plan),
        *_concat_notes(plan.concats),
        *_hidden_notes(network, ranges),
    )


def _opset_notes(plan: QuantizationPlan, opset: tuple[int, int], fallback: str) -> Iterator[Note]:
    before, after = opset
    if after != before:
        yield Note("opset_raised", "model", f"opset raised from {before} to {after} for the scales that Q/DQ needs")
    if fallback and not plan.per_channel:
        text = f"weights have one scale each: opset {after} has none per channel and cannot be raised ({fallback})"
        yield Note("per_tensor_fallback", "model", text)


def _fold_notes(folded: Sequence[FoldedNorm]) -> Iterator[Note]:
    if folded:
        shown = ", ".join(item.norm for item in folded[:3]) + (f" and {len(folded) - 3} more" if folded[3:] else "")
        text = f"{len(folded)} BatchNormalization folded into the layers before them, as TensorRT would: {shown}"
        yield Note("norm_folded", folded[0].norm, text)


def _input_notes(fixed: Sequence[str]) -> Iterator[Note]:
    if fixed:
        text = f"{len(fixed)} initialisers are no inputs any more: ranges and scales rest on their values"
        yield Note("inputs_fixed", fixed[0], text)


def _dead_notes(plan: QuantizationPlan, dead_channels: Mapping[str, tuple[int, ...]]) -> Iterator[Note]:
    for pair in plan.activations:
        if pair.amax == 0:
            yield Note("dead_tensor", pair.tensor, "zero on every calibration image; its scale is a floor")
    for name, channels in dead_channels.items():
        shown = ", ".join(map(str, channels[:8])) + (", …" if len(channels) > 8 else "")
        yield Note("dead_channels", name, f"{len(channels)} all-zero channels ({shown}); their scale is a floor")


def _layer_notes(plan: QuantizationPlan) -> Iterator[Note]:
    """List layers and additions in float one by one; vectors and operators without INT8 path by reason."""
    others: dict[tuple[str, str], list[str]] = {}
    for item in plan.with_status("float"):
        code = _float_code(item)
        if code == "no_int8_path" or item.reason in VECTORS:
            others.setdefault((code, item.reason), []).append(f"{item.op_type} {item.label}")
        else:
            yield Note(code, item.label, f"{item.op_type} in float: {item.text}")
    for (code, reason), labels in others.items():
        shown = ", ".join(labels[:3]) + (f" and {len(labels) - 3} more" if len(labels) > 3 else "")
        yield Note(code, reason, f"{len(labels)} in float: {REASONS[reason]}: {shown}")


def _float_code(item: Decision) -> str:
    if item.op_type in COMPUTE:
        return "float_layer"
    return "float_addition" if item.op_type in {"Add", "Sum"} and item.reason in ADDITION_REASONS else "no_int8_path"


def _concat_notes(concats: tuple[ConcatInput, ...]) -> Iterator[Note]:
    for item in concats:
        if item.shared > CONCAT_RATIO * item.amax and math.isfinite(item.bits):
            text = f"{item.tensor} has amax {item.amax:.4g}, the whole {item.shared:.4g}: {item.bits:.1f} bits lost"
            yield Note("concat_ranges", item.node, text)


def _hidden_notes(network: Network, ranges: Mapping[str, float]) -> Iterator[Note]:
    hidden = [item for item in network.not_covered if item.reason in {"inside subgraph", "inside function"}]
    layers = [item for item in hidden if item.op_type in COMPUTE]
    if layers:
        text = f"{len(layers)} layers inside subgraphs or functions stay in float; onnx.inliner inlines functions"
        yield Note("hidden_layers", layers[0].name, text)
    absent = [item.name for item in network.activations if item.name not in ranges and item.elem_type is not None]
    if absent:
        yield Note("no_range", absent[0], f"{len(absent)} activations have no range")
