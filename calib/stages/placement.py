"""Where Q/DQ pairs go: a plan, from a network and its ranges. Pure; :mod:`calib.stages.qdq` writes it.

The rules are those of TensorRT's explicit quantization (docs/placement.md): pairs on the inputs of convolutions,
transposed convolutions and matrix products, and on the shortcut side of residual additions; none on outputs,
none between a convolution and what fuses into it; one pair per tensor, shared by its consumers.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from calib.core.axes import weight_axis
from calib.core.follow import follower_decision
from calib.core.graph import Network, Node, Use
from calib.core.plan import (
    TARGETS,
    ActivationQuantizer,
    ConcatInput,
    Decision,
    PlacementOptions,
    QuantizationPlan,
    Target,
    WeightQuantizer,
)
from calib.core.roles import COMPUTE, Roles, find_roles, is_standard, pad_keeps_range
from calib.errors import ModelError, StatisticsError, UsageError

MINIMUM_OPSET: Mapping[str, int] = {"float32": 10, "float16": 19, "bfloat16": 19}
"""First opset whose QuantizeLinear takes the type."""
PER_CHANNEL_OPSET = 13
DEFAULTS = PlacementOptions()
LOSS_BITS = 1.0
"""Concatenation inputs that lose less than this are not listed."""


@dataclass(frozen=True)
class _Setting:
    network: Network
    ranges: Mapping[str, float]
    target: Target
    options: PlacementOptions
    roles: Roles
    floats: Mapping[str, str | None]
    unreadable: Collection[str]


Sites = dict[str, list[Use]]
Constants = dict[tuple[str, int | None], list[Use]]


def plan_quantization(
    network: Network,
    ranges: Mapping[str, float],
    target: Target = "trt11",
    options: PlacementOptions = DEFAULTS,
    unreadable: Collection[str] = (),
) -> QuantizationPlan:
    """Decide where Q/DQ pairs go and record, for every node on activations, what was done and why.

    Args:
        network: a float network.
        ranges: amax by tensor name; 0 marks a dead tensor. Tensors without range keep their layers in float.
        target: what will read the model.
        options: the user's choices.
        unreadable: constants whose value cannot be known; layers that read them stay in float.

    Raises:
        ModelError: the network holds Q/DQ already.
        StatisticsError: an amax is negative, infinite or NaN.
        UsageError: the target is none of :data:`TARGETS`.
    """
    _check(network, ranges, target)
    floats = {item.name: item.elem_type for item in network.activations}
    setting = _Setting(network, ranges, target, options, find_roles(network), floats, unreadable)
    sites: Sites = {}
    constants: Constants = {}
    decided: dict[int, Decision] = {}
    for node in _nodes(setting, layers=True):
        decided[node.index] = _place_layer(node, setting, sites, constants)
    int8 = {index for index, item in decided.items() if item.status == "int8"}
    for node in _nodes(setting, layers=False):
        decision = _place_addition(node, setting, sites, int8)
        decision = decision or follower_decision(node, setting.network, setting.roles, int8)
        decided[node.index] = decision
        int8.update({node.index} if decision.status in {"int8", "fused"} else ())
    _move_before_pads_and_pools(sites, setting)
    activations = _activation_quantizers(sites, setting)
    return QuantizationPlan(
        target=target,
        options=options,
        activations=activations,
        weights=_weight_quantizers(constants, setting),
        decisions=tuple(decided[index] for index in network.order if index in decided),
        concats=tuple(_concat_losses(setting)),
        per_channel=_per_channel(setting),
    )


def refuse_quantized(network: Network) -> None:
    """Refuse a network that holds Q/DQ already.

    Raises:
        ModelError: it does; the node is named.
    """
    for node in network.nodes:
        if node.op_type in {"QuantizeLinear", "DequantizeLinear"}:
            raise ModelError(
                f"node {node.label}",
                expected="a float network",
                got=f"one with {node.op_type} in it",
                remedy="start from the float model that this one was made from",
            )


def _check(network: Network, ranges: Mapping[str, float], target: str) -> None:
    if target not in TARGETS:
        raise UsageError(f"target {target!r}", expected=f"one of {', '.join(TARGETS)}", got=repr(target), remedy="")
    refuse_quantized(network)
    for name, amax in ranges.items():
        if not math.isfinite(amax) or amax < 0:
            raise StatisticsError(
                f"tensor {name!r}", expected="amax finite and >= 0", got=f"{amax!r}", remedy="calibrate again"
            )


def _nodes(setting: _Setting, *, layers: bool) -> Iterator[Node]:
    """List the nodes that make activations: the layers, or the others, in network order."""
    for index in setting.network.order:
        node = setting.network.nodes[index]
        on_activations = any(name in setting.floats for name in node.outputs)
        if on_activations and is_standard(node, *COMPUTE) == layers:
            yield node


def _place_layer(node: Node, setting: _Setting, sites: Sites, constants: Constants) -> Decision:
    refusal = _refusal(node, setting)
    if refusal is not None:
        return Decision(node.index, node.label, node.op_type, "float", *refusal)
    for slot in (0, 1):
        name, use = node.inputs[slot], Use(node.index, slot)
        if name in setting.network.constants:
            axis = weight_axis(node, slot, setting.network, setting.options) if _per_channel(setting) else None
            constants.setdefault((name, axis), []).append(use)
        else:
            sites.setdefault(name, []).append(use)
    return Decision(node.index, node.label, node.op_type, "int8", "quantized")


def _refusal(node: Node, setting: _Setting) -> tuple[str, str] | None:
    """Answer why a layer stays in float, as reason code and detail, or None."""
    role = _role_refusal(node, setting)
    if role is not None:
        return role, ""
    for name in (node.input(0), node.input(1)):
        found = _operand_refusal(name, node, setting)
        if found is not None:
            return found, name
    return None


def _role_refusal(node: Node, setting: _Setting) -> str | None:
    options, roles = setting.options, setting.roles
    transposed = node.op_type == "ConvTranspose"
    grouped = transposed and node.attributes.get("group", 1) != 1
    checks = (
        ("excluded", node.label in options.float_nodes),
        ("logits", node.index in roles.logits and not options.logits),
        ("gate", node.index in roles.gates and not options.gates),
        ("global_context", node.index in roles.context and not options.gates),
        ("deconv_float", transposed and options.conv_transpose == "float"),
        ("grouped_deconv", grouped and setting.target != "ort"),
    )
    return next((reason for reason, holds in checks if holds), None)


def _operand_refusal(name: str, node: Node, setting: _Setting) -> str | None:
    if name in setting.unreadable:
        return "unreadable_weight"
    if name not in setting.network.constants and name not in setting.ranges:
        return "no_range"
    needed = MINIMUM_OPSET.get(_elem_type(name, node, setting.network) or "")
    if needed is None:
        return "element_type"
    return "opset" if setting.network.opset < needed else None


def _elem_type(name: str, node: Node, network: Network) -> str | None:
    """Find an operand's type; all operands of a layer share one, so that its weight tells an unknown one's."""
    known = (network.elem_types.get(item) for item in (name, *node.inputs, *node.outputs))
    return next(filter(None, known), None)


def _per_channel(setting: _Setting) -> bool:
    return setting.options.per_channel and setting.network.opset >= PER_CHANNEL_OPSET


def _place_addition(node: Node, setting: _Setting, sites: Sites, int8: Collection[int]) -> Decision | None:
    """Decide an addition of two maps; None for any other node."""
    addition = setting.roles.additions.get(node.index)
    if addition is None or node.index in setting.roles.gates | setting.roles.context:
        return None
    shortcut = node.inputs[addition.shortcut]
    reason = addition.reason or _addition_refusal(node, addition.layer, shortcut, setting, int8)
    if reason:
        return Decision(node.index, node.label, node.op_type, "float", reason)
    sites.setdefault(shortcut, []).append(Use(node.index, addition.shortcut))
    return Decision(node.index, node.label, node.op_type, "int8", "residual", shortcut)


def _addition_refusal(
    node: Node, layer: int | None, shortcut: str, setting: _Setting, int8: Collection[int]
) -> str | None:
    if node.label in setting.options.float_nodes:
        return "excluded"
    return "layer_in_float" if layer not in int8 else _operand_refusal(shortcut, node, setting)


def _move_before_pads_and_pools(sites: Sites, setting: _Setting) -> None:
    """Move pairs from behind a Pad to before it, and from behind a MaxPool onto a pair its input has anyway."""
    for index in reversed(setting.network.order):
        node = setting.network.nodes[index]
        if _may_move(node, sites, setting):
            del sites[node.outputs[0]]
            sites.setdefault(node.inputs[0], []).append(Use(index, 0))


def _may_move(node: Node, sites: Sites, setting: _Setting) -> bool:
    network, output = setting.network, node.outputs[0] if node.outputs else ""
    if output not in sites or output in network.output_names:
        return False
    if set(sites[output]) != set(network.consumers.get(output, ())):
        return False
    if is_standard(node, "MaxPool"):
        return node.inputs[0] in sites and not any(node.outputs[1:])
    return pad_keeps_range(node, network) and node.inputs[0] in setting.ranges


def _activation_quantizers(sites: Sites, setting: _Setting) -> tuple[ActivationQuantizer, ...]:
    tied = _tied_ranges(sites, setting) if setting.options.tie_concat else {}
    found: list[ActivationQuantizer] = []
    for item in setting.network.activations:
        uses = tuple(sorted(sites.get(item.name, ()), key=lambda use: (use.node, use.slot)))
        if uses:
            elem_type = _elem_type(item.name, setting.network.nodes[uses[0].node], setting.network)
            amax = tied.get(item.name, setting.ranges[item.name])
            whole = ActivationQuantizer(item.name, amax, str(elem_type), uses)
            parts = [(use,) for use in uses] if setting.options.dedicated else [uses]
            found.extend(replace(whole, uses=part) for part in parts)
    return tuple(found)


def _tied_ranges(sites: Sites, setting: _Setting) -> dict[str, float]:
    """Give each concatenation and its inputs the largest range among their pairs; chains of them tie together."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for node in _nodes(setting, layers=False):
        if is_standard(node, "Concat"):
            for name in node.inputs:
                root[find(name)] = find(node.outputs[0])
    members = [name for name in root if name in sites]
    largest: dict[str, float] = {}
    for name in members:
        largest[find(name)] = max(largest.get(find(name), 0.0), setting.ranges[name])
    return {name: largest[find(name)] for name in members}


def _weight_quantizers(constants: Constants, setting: _Setting) -> tuple[WeightQuantizer, ...]:
    found: list[WeightQuantizer] = []
    for (name, axis), uses in constants.items():
        elem_type = _elem_type(name, setting.network.nodes[uses[0].node], setting.network)
        found.append(WeightQuantizer(name, axis, str(elem_type), tuple(uses)))
    return tuple(found)


def _concat_losses(setting: _Setting) -> Iterator[ConcatInput]:
    """Price what each input of a concatenation loses by the one scale that INT8 gives the whole."""
    for node in _nodes(setting, layers=False):
        if not is_standard(node, "Concat"):
            continue
        known = {name: setting.ranges[name] for name in node.inputs if name in setting.ranges}
        shared = setting.ranges.get(node.outputs[0], max(known.values(), default=0.0))
        for name, amax in known.items():
            bits = math.log2(shared / amax) if amax else math.inf
            if shared > 0 and bits >= LOSS_BITS:
                yield ConcatInput(node.label, name, amax, shared, bits)
