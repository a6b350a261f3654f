"""Take the Q/DQ pairs out of a model: the float network it was made from, names included."""

from __future__ import annotations

import onnx

from calib.core.graph.structure import all_graphs

QUANTIZE, DEQUANTIZE = "QuantizeLinear", "DequantizeLinear"


def strip_qdq(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without its Q/DQ pairs.

    What read the result of a pair reads its input again. A DequantizeLinear on stored integers stays: there is no
    float weight to go back to. Scales and zero points that nothing reads any more are left out.

    Args:
        model: not changed.
    """
    made = {name: node for node in model.graph.node for name in node.output if name}
    renamed: dict[str, str] = {}
    for node in model.graph.node:
        source = made.get(node.input[0]) if node.op_type == DEQUANTIZE and node.input else None
        if source is not None and source.op_type == QUANTIZE:
            renamed[node.output[0]] = source.input[0]
    answer = onnx.ModelProto()
    answer.CopyFrom(model)
    del answer.graph.node[:]
    for node in model.graph.node:
        if node.op_type == QUANTIZE or (node.output and node.output[0] in renamed):
            continue
        kept = answer.graph.node.add()
        kept.CopyFrom(node)
        for slot, name in enumerate(kept.input):
            kept.input[slot] = _original(name, renamed)
    _drop_unread(answer)
    return answer


def _original(name: str, renamed: dict[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def _drop_unread(model: onnx.ModelProto) -> None:
    read = {name for graph in all_graphs(model.graph) for node in graph.node for name in node.input}
    read.update(output.name for output in model.graph.output)
    kept = [tensor for tensor in model.graph.initializer if tensor.name in read]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
