"""Raising a model's operator set, with everything else kept: ONNX's converter, its known faults repaired.

The converter sees a copy without large weights (it takes no model over 2 GB) and gives back nodes and small
constants; those replace the model's own. Weights, names, doc strings, metadata and declared shapes stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import onnx
from onnx import helper, version_converter

from calib.core.graph.constants import small_constants
from calib.core.graph.elements import skeleton
from calib.core.graph.structure import (
    all_graphs,
    consumers_of,
    initializer_names,
    producers_of,
    read_nodes,
    standard_domain,
    topological_order,
)
from calib.errors import CalibError, ModelError

DROPPED_MODES = frozenset({"tf_half_pixel_for_nn"})
"""Resize modes that opset 13 no longer has and that the converter passes on."""


def opset_of(model: onnx.ModelProto) -> int:
    """Read the version of the standard operator set, 1 when the model states none."""
    return max((entry.version for entry in model.opset_import if not standard_domain(entry.domain)), default=1)


def convert_opset(model: onnx.ModelProto, minimum: int) -> onnx.ModelProto:
    """Raise the standard operator set to at least ``minimum``; a model that has it comes back as it is.

    The answer computes what the model computed: below opset 13 Softmax flattens its input, below 11 Resize
    samples asymmetrically, and the converted nodes say so. The argument is not changed.

    Raises:
        ModelError: the converter cannot convert an operator of this model; its reason is in the message.
    """
    before = opset_of(model)
    if before >= minimum:
        return model
    _refuse_dropped_modes(model, before, minimum)
    try:
        converted = version_converter.convert_version(skeleton(model), minimum)
    except Exception as error:
        reason = str(error).strip().splitlines()
        raise _failure(before, minimum, reason[0] if reason else type(error).__name__) from error
    answer = _assembled(model, converted, minimum)
    if before < 11:
        _restore_sampling(model, answer)
    _check_wiring(answer, before, minimum)
    return answer


def _failure(before: int, minimum: int, reason: str) -> ModelError:
    return ModelError(
        f"opset {before}",
        expected=f"operators that convert to opset {minimum}",
        got=reason,
        remedy=f"export the network again with opset {minimum} or higher",
    )


def _refuse_dropped_modes(model: onnx.ModelProto, before: int, minimum: int) -> None:
    for node in _nodes(model):
        for attribute in node.attribute:
            if node.op_type == "Resize" and attribute.s.decode("utf-8", "replace") in DROPPED_MODES and minimum > 12:
                raise _failure(before, minimum, f"Resize with {attribute.s.decode()}, which opset 13 dropped")


def _nodes(model: onnx.ModelProto) -> Iterable[onnx.NodeProto]:
    return (node for graph in all_graphs(model.graph) for node in graph.node)


def _assembled(model: onnx.ModelProto, converted: onnx.ModelProto, minimum: int) -> onnx.ModelProto:
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    for entry in answer.opset_import:
        if not standard_domain(entry.domain):
            entry.version = minimum
    if not any(not standard_domain(entry.domain) for entry in answer.opset_import):
        answer.opset_import.append(helper.make_opsetid("", minimum))
    answer.ir_version = max(model.ir_version, helper.find_min_ir_version_for(_standard(answer)))
    originals = {tuple(node.output): node for node in model.graph.node}
    del answer.graph.node[:]
    answer.graph.node.extend(_kept(node, originals.get(tuple(node.output))) for node in converted.graph.node)
    held = set(initializer_names(model.graph))
    answer.graph.initializer.extend(tensor for tensor in converted.graph.initializer if tensor.name not in held)
    return answer


def _standard(model: onnx.ModelProto) -> list[onnx.OperatorSetIdProto]:
    return [entry for entry in model.opset_import if not standard_domain(entry.domain)]


def _kept(node: onnx.NodeProto, original: onnx.NodeProto | None) -> onnx.NodeProto:
    """Take the original node where conversion changed nothing; else keep its name, doc string and metadata."""
    if original is None or original.op_type != node.op_type:
        return node
    if original.input == node.input and _attributes(original) == _attributes(node):
        return original
    merged = onnx.NodeProto()
    merged.CopyFrom(node)
    merged.name, merged.doc_string = original.name, original.doc_string
    del merged.metadata_props[:]
    merged.metadata_props.extend(original.metadata_props)
    return merged


def _attributes(node: onnx.NodeProto) -> dict[str, bytes]:
    return {item.name: item.SerializeToString(deterministic=True) for item in node.attribute}


def _restore_sampling(model: onnx.ModelProto, answer: onnx.ModelProto) -> None:
    """State how Resize and Upsample sampled before opset 11; the converter leaves the new default, half_pixel.

    Nearest sampling took the floor when enlarging and the ceiling when shrinking (ONNX Runtime's reading of
    opset 10).
    """
    old = {name: node for node in _nodes(model) if node.op_type in {"Resize", "Upsample"} for name in node.output}
    values = dict(small_constants(model))
    for node in _nodes(answer):
        original = old.get(node.output[0]) if node.op_type == "Resize" else None
        if original is not None:
            stated = {item.name for item in node.attribute}
            wanted = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": _rounding(original, values)}
            node.attribute.extend(helper.make_attribute(*item) for item in wanted.items() if item[0] not in stated)


def _rounding(node: onnx.NodeProto, values: Mapping[str, tuple[float, ...]]) -> str:
    scales = values.get(node.input[1], ()) if len(node.input) > 1 else ()
    return "ceil" if any(scale < 1 for scale in scales) else "floor"


def _check_wiring(answer: onnx.ModelProto, before: int, minimum: int) -> None:
    """Refuse a conversion whose new names clash or that lost a tensor."""
    try:
        nodes = read_nodes(answer.graph)
        roots = {*(value.name for value in answer.graph.input), *initializer_names(answer.graph)}
        made = producers_of(nodes, roots)
        topological_order(nodes, made, roots)
    except CalibError as error:
        raise _failure(before, minimum, f"a faulty conversion ({error.place}: {error.got})") from error
    lost = [value.name for value in answer.graph.output if value.name not in made and value.name not in roots]
    if lost or not consumers_of(nodes):
        raise _failure(before, minimum, f"a conversion that lost {', '.join(lost) or 'every input'}")
