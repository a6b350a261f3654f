"""Fold batch normalisations that an exporter left standing into the convolutions before them. Pure."""

from __future__ import annotations

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calib.core.graph import Network, Node, analyse
from calib.core.graph.stored import StoredValues
from calib.core.roles import is_standard

LAYERS = ("Conv", "ConvTranspose")
EPSILON = 1e-5
Float = NDArray[np.float64]


def fold_norms(model: onnx.ModelProto) -> tuple[str, ...]:
    """Fold each batch normalisation into the convolution that alone feeds it, in place.

    With ``f = gamma / sqrt(var + eps)``, the weight is multiplied by ``f`` along its output channels, and the bias
    becomes ``(b - mean) * f + beta``, computed in float64. A weight that several layers read becomes one of its own
    for each; a sum that something else reads stays as it is.
    PyTorch's TorchScript exporter folds behind Conv alone; a transposed convolution whose weight is quantized without
    its normalisation cannot absorb it any more.

    Args:
        model: a float network in inference mode; changed.

    Returns:
        the normalisations that were folded, by node name.
    """
    network = analyse(model)
    stored = StoredValues(model)
    folded: dict[int, str] = {}
    loose: set[str] = set()
    for norm in network.nodes:
        layer = _layer_before(norm, network)
        if layer is not None and _fold(model, stored, layer, norm, shared=len(network.consumers[layer.input(1)]) > 1):
            folded[norm.index] = norm.label
            loose.update(filter(None, (*norm.inputs, *layer.inputs[1:])))
    if folded:
        kept = [node for index, node in enumerate(model.graph.node) if index not in folded]
        del model.graph.node[:]
        model.graph.node.extend(kept)
        _drop_unused(model, loose)
    return tuple(folded.values())


def _layer_before(norm: Node, network: Network) -> Node | None:
    """Find the convolution whose output a batch normalisation alone reads."""
    if not is_standard(norm, "BatchNormalization") or any(norm.outputs[1:]) or norm.attributes.get("training_mode", 0):
        return None
    made = norm.input(0)
    layer = network.producer(made)
    if layer is None or not is_standard(layer, *LAYERS) or len(network.consumers.get(made, ())) != 1:
        return None
    outputs = {item.name for item in network.outputs}
    return None if made in outputs else layer


def _fold(model: onnx.ModelProto, stored: StoredValues, layer: Node, norm: Node, *, shared: bool) -> bool:
    """Write the folded weight and bias; False where one of the constants is none, or not of float32."""
    names = [layer.input(1), *(norm.input(slot) for slot in range(1, 5))]
    values = [stored.value(name) for name in names]
    bias = stored.value(layer.input(2)) if layer.input(2) else None
    unfit = any(item is None or item.dtype != np.float32 for item in values) or (layer.input(2) and bias is None)
    if unfit or layer.input(1) not in stored.initializers:
        return False
    weight, gamma, beta, mean, variance = (np.asarray(item, np.float64) for item in values)
    factor = gamma / np.sqrt(variance + _number(norm, "epsilon", EPSILON))
    offset = np.zeros_like(mean) if bias is None else np.asarray(bias, np.float64)
    if weight.ndim < 3 or not np.isfinite(factor).all():
        return False
    group = int(_number(layer, "group", 1))
    scaled = _scale_channels(weight, factor, group, transposed=layer.op_type == "ConvTranspose")
    name = f"{layer.input(1)}.{layer.index}" if shared else layer.input(1)
    _store(model, name, scaled)
    _store(model, f"{name}.folded_bias", (offset - mean) * factor + beta)
    _rewire(model.graph.node[layer.index], norm, name)
    return True


def _number(node: Node, name: str, default: float) -> float:
    return float(node.attributes.get(name, default))  # type: ignore[arg-type]


def _scale_channels(weight: Float, factor: Float, group: int, *, transposed: bool) -> Float:
    """Multiply the output channels: axis 0, or of a transposed convolution axis 1 within each group."""
    if not transposed:
        return weight * factor.reshape(-1, *[1] * (weight.ndim - 1))
    inputs, outputs, *kernel = weight.shape
    grouped = weight.reshape(group, inputs // group, outputs, *kernel)
    return (grouped * factor.reshape(group, 1, outputs, *[1] * len(kernel))).reshape(weight.shape)


def _rewire(layer: onnx.NodeProto, norm: Node, weight: str) -> None:
    data = layer.input[0]
    del layer.input[:]
    layer.input.extend([data, weight, f"{weight}.folded_bias"])
    layer.output[0] = norm.outputs[0]


def _store(model: onnx.ModelProto, name: str, value: Float) -> None:
    tensor = numpy_helper.from_array(np.ascontiguousarray(value, np.float32), name)
    for held in model.graph.initializer:
        if held.name == name:
            held.CopyFrom(tensor)
            return
    model.graph.initializer.append(tensor)


def _drop_unused(model: onnx.ModelProto, names: set[str]) -> None:
    """Drop constants and shapes that nothing refers to any more."""
    network = analyse(model)
    kept = {*network.producers, *(item.name for item in (*network.inputs, *network.outputs))}
    dropped = {name for name in names if not network.consumers.get(name) and name not in kept}
    for items in (model.graph.initializer, model.graph.value_info):
        for place in reversed(range(len(items))):
            if items[place].name in dropped:
                del items[place]
