"""Which layers a file of ranges quantizes, so that a network can be quantized where it was trained to be."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Literal

import onnx

from calib.core.formats.quantizers import bare_name
from calib.core.formats.statedict import split_quantizer
from calib.core.graph import Network, Node, analyse
from calib.core.plan import PlacementOptions, Target
from calib.core.roles import COMPUTE, find_roles, is_standard
from calib.errors import FormatError
from calib.stages.convert import amax_of
from calib.stages.modules import ModuleMap, map_modules, to_tensors
from calib.stages.placement import DEFAULTS, plan_quantization
from calib.stages.qdq import QdqResult, quantize_model
from calib.stages.rangecoverage import listed
from calib.stages.weightmatch import layers_of, match_weights, weight_remarks
from calib.types.rangetable import RangeTable

Uses = Collection[tuple[str, int]]


def layers_with_weight(network: Network) -> Iterator[Node]:
    """List the layers that have a constant weight, in network order."""
    for index in network.order:
        node = network.nodes[index]
        if is_standard(node, *COMPUTE) and any(name in network.constants for name in node.inputs[:2]):
            yield node


def trained_layers(table: RangeTable, network: Network, modules: ModuleMap, uses: Uses | None = None) -> frozenset[int]:
    """Find the layers whose input and weight both have a quantizer in the file, and the additions whose shortcut has.

    Args:
        table: as it was read: by module, or by tensor.
        network: the float network.
        modules: its modules.
        uses: the inputs that read quantized values in the file's own graph, where that is the network's.

    Returns:
        Indices of nodes.
    """
    if table.naming == "module":
        return frozenset(_by_module(table, modules))
    additions = (item for item in find_roles(network).additions.values() if not item.reason)
    shortcuts = {item.node: item.shortcut for item in additions}
    if uses is not None:
        weighted = {node.index for node in layers_with_weight(network)}
        read = {(node.index, slot) for node in network.nodes for slot in (0, 1) if (_label(node), slot) in uses}
        layers = {index for index in weighted if {(index, 0), (index, 1)} <= read}
        return frozenset(layers | {node for node, slot in shortcuts.items() if (node, slot) in read})
    names = {item.name for item in table.weights} | set(table.parameters)
    known = {node.index for name in names for node in layers_of(name, modules).values()}
    return frozenset(index for index in known if any(name in table.ranges for name in network.nodes[index].inputs[:1]))


def _label(node: Node) -> str:
    return node.name or next(iter(node.outputs), "")


def _by_module(table: RangeTable, modules: ModuleMap) -> Iterator[int]:
    quantizers: dict[str, set[str]] = {}
    for name in (*table.ranges, *(item.name for item in table.weights)):
        module, quantizer = split_quantizer(name) or ("", "")
        quantizers.setdefault(bare_name(module), set()).add(quantizer)
    for module, found in quantizers.items():
        for node in modules.find(module):
            layer = node.index in modules.weights and {"input_quantizer", "weight_quantizer"} <= found
            addition = node.index in modules.shortcuts and any("residual" in item or "input1" in item for item in found)
            yield from [node.index] * (layer or addition)


def options_as_trained(
    options: PlacementOptions, trained: Collection[int], table: RangeTable, network: Network
) -> PlacementOptions:
    """Choose the placement that quantizes exactly the layers the file quantizes, logits and gates among them.

    Args:
        options: further choices.
        trained: answer of :func:`trained_layers`.
        table: names tensors; its weights' axes tell how transposed convolutions were quantized.
        network: the float network.
    """
    roles = find_roles(network)
    candidates = {node.index for node in layers_with_weight(network)} | set(roles.additions)
    kept = {network.nodes[index].label for index in candidates - set(trained)}
    axes = {item.name: item.axis for item in table.weights}
    deconvs = {
        axes.get(node.inputs[1])
        for node in layers_with_weight(network)
        if node.op_type == "ConvTranspose" and node.index in trained
    }
    axis: Literal[0, 1] | None = 0 if deconvs == {0} else 1 if deconvs == {1} else None
    return replace(
        options,
        logits=True,
        gates=True,
        float_nodes=options.float_nodes | kept,
        conv_transpose=options.conv_transpose if axis is None else "axis",
        conv_transpose_axis=axis,
    )


def planned_layers(
    model: onnx.ModelProto, target: Target = "trt11", options: PlacementOptions = DEFAULTS
) -> tuple[str, ...]:
    """Name the modules that the placement quantizes, for a trainer that puts fake quantizers on modules.

    Args:
        model: the float network's ONNX export, with node names or metadata that tell modules.
        target: what will read the quantized network.
        options: placement choices.

    Returns:
        Names of modules in network order: logits and gates are not among them unless asked for.
    """
    network = analyse(model)
    modules = map_modules(model, network)
    plan = plan_quantization(network, dict.fromkeys((item.name for item in network.activations), 1.0), target, options)
    int8 = (item.node for item in plan.with_status("int8") if item.node in modules.weights)
    return tuple(dict.fromkeys(filter(None, (modules.module_of(node) for node in int8))))


def place_on_modules(
    model: onnx.ModelProto,
    accepts: Callable[[str], bool],
    target: Target = "trt11",
    options: PlacementOptions = DEFAULTS,
) -> tuple[tuple[str, ...], PlacementOptions]:
    """Choose the modules to quantize, and the placement that quantizes these alone.

    The rest stays float: shortcuts of additions, which are no module's input, modules that the trainer cannot quantize,
    and modules that are used several times of which the placement keeps a use in float.

    Args:
        model: the float network's ONNX export.
        accepts: whether the trainer can put fake quantizers on a module of this name.
        target: what will read the quantized network.
        options: further placement choices.

    Returns:
        names of modules in network order, and the options.
    """
    network = analyse(model)
    modules = map_modules(model, network)
    plan = plan_quantization(network, dict.fromkeys((item.name for item in network.activations), 1.0), target, options)
    planned = {item.node: modules.module_of(item.node) for item in plan.with_status("int8")}
    layers = dict.fromkeys(name for name in planned.values() if name and _is_whole(name, modules, planned))
    named = tuple(name for name in layers if accepts(name))
    kept = {node for node, name in planned.items() if name not in named or node not in modules.weights}
    labels = {network.nodes[node].label for node in kept}
    return named, replace(options, float_nodes=options.float_nodes | labels)


def _is_whole(name: str, modules: ModuleMap, planned: Collection[int]) -> bool:
    """Whether all uses of a module that have a weight are planned."""
    weighted = [node.index for node in modules.find(name) if node.index in modules.weights]
    return bool(weighted) and all(node in planned for node in weighted)


def quantize_as_trained(
    model: onnx.ModelProto, table: RangeTable, target: Target = "trt11", options: PlacementOptions = DEFAULTS
) -> QdqResult:
    """Write the Q/DQ network of trained ranges: exactly the layers that have quantizers, at exactly their ranges.

    Args:
        model: the float network's ONNX export, with the trained weights.
        table: ranges by module, with the weights they belong to.
        target: what will read it.
        options: further placement choices.

    Raises:
        FormatError: a quantizer has no tensor in the network, or the network has other weights than the table.
        ModelError: the network cannot be quantized.
    """
    network = analyse(model)
    modules = map_modules(model, network)
    named, lost = to_tensors(table, modules)
    remarks = weight_remarks(table, match_weights(table, model, network, modules))
    wrong = [item.sentence for item in remarks if item.blocks]
    if lost or wrong:
        got = "; ".join([*wrong, *([f"no tensor for {listed(lost)}"] if lost else [])])
        remedy = "export the network again, from the weights that were trained"
        raise FormatError(table.place, expected="ranges of this network", got=got, remedy=remedy)
    placed = options_as_trained(options, trained_layers(table, network, modules), named, network)
    weights = {item.name: item for item in named.weights if item.follows_weight is False}
    return quantize_model(model, amax_of(named), target, placed, weights)
