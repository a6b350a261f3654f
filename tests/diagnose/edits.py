"""One change to a network, as an export or a rewrite gone wrong makes it; each says where it is and what it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import helper, numpy_helper

Model = onnx.ModelProto


@dataclass(frozen=True)
class Planted:
    """A candidate with one fault.

    Attributes:
        model: the network.
        node: the node that was changed, dropped or put in.
        kinds: names of the cause that are right.
        stage: where accuracy is lost.
    """

    model: Model
    node: str
    kinds: tuple[str, ...]
    stage: str = "export"


def copied(model: Model) -> Model:
    copy = Model()
    copy.CopyFrom(model)
    return copy


def attribute(node: onnx.NodeProto, name: str, default: object = None) -> object:
    found = [item for item in node.attribute if item.name == name]
    return helper.get_attribute_value(found[0]) if found else default


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    kept = [item for item in node.attribute if item.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))


def stored(model: Model, name: str) -> np.ndarray | None:
    for tensor in model.graph.initializer:
        if tensor.name == name:
            return numpy_helper.to_array(tensor)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output[0] == name:
            return numpy_helper.to_array(node.attribute[0].t)
    return None


def put(model: Model, name: str, array: np.ndarray) -> str:
    """Store an array under a new name like this one."""
    new = f"{name}_{len(model.graph.initializer)}"
    model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), new))
    return new


def chosen(
    model: Model, op_type: str, place: float, test: Callable[[Model, onnx.NodeProto], bool] | None = None
) -> int:
    """Index of the node of a kind at a relative place of the network, 0 to 1."""
    fitting = [
        index
        for index, node in enumerate(model.graph.node)
        if node.op_type == op_type and (test is None or test(model, node))
    ]
    if not fitting:
        raise LookupError(f"no {op_type} that fits")
    return fitting[min(int(place * len(fitting)), len(fitting) - 1)]


def rename_reads(model: Model, old: str, new: str, but: Iterable[str] = ()) -> None:
    for node in model.graph.node:
        if node.name in but:
            continue
        for slot, name in enumerate(node.input):
            if name == old:
                node.input[slot] = new


def drop(model: Model, index: int) -> Model:
    """Leave out a node: what it reads goes where it went."""
    copy = copied(model)
    node = copy.graph.node[index]
    source, outputs = node.input[0], list(node.output)
    name = node.name
    if any(outputs[0] == item.name for item in copy.graph.output):
        maker = next(other for other in copy.graph.node if source in other.output)
        rename_reads(copy, source, outputs[0], [name])
        maker.output[list(maker.output).index(source)] = outputs[0]
    else:
        rename_reads(copy, outputs[0], source)
    del copy.graph.node[index]
    return copy


def insert_after(model: Model, index: int, node: onnx.NodeProto) -> Model:
    """Put a node behind another: it reads that one's output, and all that read the output read it."""
    copy = copied(model)
    maker = copy.graph.node[index]
    inner, outer = f"{maker.output[0]}/before", maker.output[0]
    added = onnx.NodeProto()
    added.CopyFrom(node)
    added.input[0] = inner
    added.output[0] = outer
    maker.output[0] = inner
    copy.graph.node.insert(index + 1, added)
    return copy


def weight_of(slot: int = 1) -> Callable[[Model, onnx.NodeProto], bool]:
    def test(model: Model, node: onnx.NodeProto) -> bool:
        return len(node.input) > slot and stored(model, node.input[slot]) is not None

    return test


def change_weight(model: Model, index: int, slot: int, change: Callable[[np.ndarray], np.ndarray]) -> Model:
    copy = copied(model)
    node = copy.graph.node[index]
    array = stored(copy, node.input[slot])
    if array is None:
        raise LookupError(node.name)
    node.input[slot] = put(copy, node.input[slot], change(array).astype(array.dtype))
    return copy


def reset(model: Model, index: int, name: str, value: object) -> Model:
    copy = copied(model)
    set_attribute(copy.graph.node[index], name, value)
    return copy


def name_of(model: Model, index: int) -> str:
    node = model.graph.node[index]
    return node.name or f"{node.op_type}({node.output[0]})"


# Faults: each takes the sound model and a relative place


def resize_mode(model: Model, place: float, to: str = "align_corners") -> Planted:
    index = chosen(model, "Resize", place)
    return Planted(reset(model, index, "coordinate_transformation_mode", to), name_of(model, index), ("resize-mode",))


def resize_nearest(model: Model, place: float) -> Planted:
    index = chosen(model, "Resize", place)
    changed = reset(model, index, "mode", "nearest")
    set_attribute(changed.graph.node[index], "coordinate_transformation_mode", "asymmetric")
    set_attribute(changed.graph.node[index], "nearest_mode", "floor")
    return Planted(changed, name_of(model, index), ("resize-mode",))


def dropped_activation(model: Model, place: float, op_type: str = "Relu") -> Planted:
    index = chosen(model, op_type, place)
    return Planted(drop(model, index), name_of(model, index), ("operator-dropped",))


def dropped_residual(model: Model, place: float) -> Planted:
    index = chosen(model, "Add", place, lambda m, n: all(stored(m, name) is None for name in n.input))
    return Planted(drop(model, index), name_of(model, index), ("operator-dropped",))


def doubled(model: Model, place: float, op_type: str = "Sigmoid") -> Planted:
    index = chosen(model, op_type, place)
    node = onnx.NodeProto()
    node.CopyFrom(model.graph.node[index])
    node.name = f"{node.name}/again"
    found = insert_after(model, index, node)
    return Planted(found, name_of(model, index), ("operator-doubled", "operator-inserted"))


def inserted_pool(model: Model, place: float) -> Planted:
    index = chosen(model, "Conv", place)
    node = helper.make_node(
        "AveragePool", ["x"], ["y"], name="extra/AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]
    )
    return Planted(insert_after(model, index, node), "extra/AveragePool", ("operator-inserted",))


def dilation(model: Model, place: float) -> Planted:
    def fits(m: Model, n: onnx.NodeProto) -> bool:
        kernel = attribute(n, "kernel_shape", [1, 1])
        return list(kernel)[-1] == 3  # type: ignore[call-overload]

    index = chosen(model, "Conv", place, fits)
    node = model.graph.node[index]
    gaps, pads = list(attribute(node, "dilations", [1, 1])), list(attribute(node, "pads", [0] * 4))  # type: ignore[call-overload]
    changed = reset(model, index, "dilations", [gap + 1 for gap in gaps])
    set_attribute(changed.graph.node[index], "pads", [pad + 1 for pad in pads])
    return Planted(changed, name_of(model, index), ("dilation", "padding"))


def padding(model: Model, place: float) -> Planted:
    def fits(m: Model, n: onnx.NodeProto) -> bool:
        pads = list(attribute(n, "pads", [0] * 4))  # type: ignore[call-overload]
        return len(pads) == 4 and pads[0] > 0 and pads[2] > 0

    index = chosen(model, "Conv", place, fits)
    pads = list(attribute(model.graph.node[index], "pads", [0] * 4))  # type: ignore[call-overload]
    moved = [pads[0] - 1, pads[1], pads[2] + 1, pads[3]]
    return Planted(reset(model, index, "pads", moved), name_of(model, index), ("padding",))


def stride(model: Model, place: float) -> Planted:
    index = chosen(model, "Conv", place, lambda m, n: list(attribute(n, "strides", [1, 1])) == [2, 2])  # type: ignore[call-overload]
    changed = reset(model, index, "strides", [1, 1])
    return Planted(changed, name_of(model, index), ("stride",))


def groups(model: Model, place: float) -> Planted:
    """A grouped convolution read as another grouping of the same weights."""
    index = chosen(model, "Conv", place, lambda m, n: int(attribute(n, "group", 1)) > 1)  # type: ignore[call-overload]
    node = model.graph.node[index]
    weight = stored(model, node.input[1])
    if weight is None:
        raise LookupError(node.name)
    count = int(attribute(node, "group", 1))  # type: ignore[call-overload]
    merged = max(count // 2, 1)
    channels = weight.shape[1] * count // merged
    wide = np.zeros((weight.shape[0], channels, *weight.shape[2:]), np.float32)
    wide[:, : weight.shape[1]] = weight
    changed = change_weight(model, index, 1, lambda _: wide)
    set_attribute(changed.graph.node[index], "group", merged)
    return Planted(changed, name_of(model, index), ("groups", "weights-replaced"))


def replaced_activation(model: Model, place: float, old: str = "Clip", new: str = "Relu") -> Planted:
    index = chosen(model, old, place)
    changed = copied(model)
    node = changed.graph.node[index]
    node.op_type = new
    del node.attribute[:]
    del node.input[1:]
    return Planted(changed, name_of(model, index), ("activation",))


def clip_bound(model: Model, place: float, bound: float = 5.0) -> Planted:
    index = chosen(model, "Clip", place)
    changed = copied(model)
    node = changed.graph.node[index]
    if len(node.input) > 2:
        node.input[2] = put(changed, node.input[2], np.array(bound, np.float32))
    else:
        set_attribute(node, "max", bound)
    return Planted(changed, name_of(model, index), ("activation",))


def weights(model: Model, place: float, how: str, op_type: str = "Conv", slot: int = 1) -> Planted:
    index = chosen(model, op_type, place, weight_of(slot))
    rng = np.random.default_rng(7)
    changes: dict[str, tuple[Callable[[np.ndarray], np.ndarray], tuple[str, ...]]] = {
        "permute": (lambda w: w[rng.permutation(len(w))], ("weights-permuted",)),
        "swap": (lambda w: w[[1, 0, *range(2, len(w))]], ("weights-permuted",)),
        "perturb": (lambda w: w + rng.normal(0, 0.1 * w.std(), w.shape), ("weights-changed",)),
        "few": (_few, ("weights-changed",)),
        "zero": (_zero_channel, ("weights-zeroed",)),
        "half": (lambda w: w.astype(np.float16), ("weights-rounded",)),
        "bf16": (_bf16, ("weights-rounded",)),
        "scale": (lambda w: w * 1.5, ("weights-scaled", "input-scale")),
        "channels": (lambda w: w * rng.uniform(0.5, 1.5, (len(w), *[1] * (w.ndim - 1))), ("weights-scaled",)),
        "flip": (lambda w: w[..., ::-1, ::-1], ("weights-flipped",)),
        "replace": (lambda w: rng.normal(0, w.std(), w.shape), ("weights-replaced",)),
        "int8": (_int8, ("weights-quantized",)),
        "transpose": (lambda w: w.swapaxes(0, 1), ("weights-transposed",)),
        "offset": (lambda w: w + 0.3, ("weights-offset",)),
    }
    change, kinds = changes[how]
    return Planted(change_weight(model, index, slot, change), name_of(model, index), kinds)


def _few(weight: np.ndarray) -> np.ndarray:
    found = weight.copy()
    found.reshape(-1)[::101] += 3 * weight.std()
    return found


def _zero_channel(weight: np.ndarray) -> np.ndarray:
    found = weight.copy()
    found[: max(1, len(found) // 4)] = 0
    return found


def _bf16(weight: np.ndarray) -> np.ndarray:
    return (weight.astype(np.float32).view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def _int8(weight: np.ndarray) -> np.ndarray:
    scale = np.abs(weight).max() / 127
    return np.round(weight / scale) * scale


def bias_lost(model: Model, place: float) -> Planted:
    index = chosen(model, "Conv", place, weight_of(2))
    changed = copied(model)
    del changed.graph.node[index].input[2:]
    return Planted(changed, name_of(model, index), ("bias-missing",))


def concat_order(model: Model, place: float) -> Planted:
    index = chosen(
        model,
        "Concat",
        place,
        lambda m, n: (
            len(set(n.input)) > 1
            and stored(m, n.input[0]) is None
            and attribute(n, "axis") in (1, -3, 3)
            and "hape" not in n.input[0]
            and "nsqueeze" not in n.input[0]
            and "Slice" not in n.input[0]
            and "onstant" not in n.input[-1]
        ),
    )
    changed = copied(model)
    node = changed.graph.node[index]
    names = list(node.input)
    del node.input[:]
    node.input.extend(names[::-1])
    return Planted(changed, name_of(model, index), ("concat-order",))


def rewired(model: Model, place: float) -> Planted:
    """A residual addition that takes its shortcut from an earlier addition."""
    additions = [
        index
        for index, node in enumerate(model.graph.node)
        if node.op_type == "Add" and all(stored(model, name) is None for name in node.input)
    ]
    later = additions[1:]
    index = later[min(int(place * len(later)), len(later) - 1)]
    changed = copied(model)
    node = changed.graph.node[index]
    node.input[0] = node.input[1]
    return Planted(changed, name_of(model, index), ("rewired",))


def batch_norm(model: Model, place: float, how: str = "epsilon") -> Planted:
    index = chosen(model, "BatchNormalization", place)
    if how == "epsilon":
        return Planted(reset(model, index, "epsilon", 0.05), name_of(model, index), ("bn-epsilon",))
    if how == "training":
        changed = reset(model, index, "training_mode", 1)
        node = changed.graph.node[index]
        node.output.extend([f"{node.output[0]}_mean", f"{node.output[0]}_var"])
        return Planted(changed, name_of(model, index), ("bn-training",))
    slot = {"mean": 3, "variance": 4, "scale": 1}[how]
    kind = "bn-affine" if how == "scale" else "bn-statistics"
    changed = change_weight(model, index, slot, lambda w: w * 1.3 + 0.05)
    return Planted(changed, name_of(model, index), (kind,))


def softmax_axis(model: Model, place: float) -> Planted:
    index = chosen(model, "Softmax", place)
    axis = 2 if attribute(model.graph.node[index], "axis", -1) != 2 else 1
    return Planted(reset(model, index, "axis", axis), name_of(model, index), ("softmax-axis",))


def pool(model: Model, place: float, how: str) -> Planted:
    if how == "kind":
        index = chosen(model, "MaxPool", place)
        changed = copied(model)
        changed.graph.node[index].op_type = "AveragePool"
        set_attribute(changed.graph.node[index], "dilations", None)
        set_attribute(changed.graph.node[index], "storage_order", None)
        return Planted(changed, name_of(model, index), ("operator-replaced",))
    index = chosen(model, "AveragePool", place, lambda m, n: any(attribute(n, "pads", [])))  # type: ignore[call-overload]
    before = int(attribute(model.graph.node[index], "count_include_pad", 0))  # type: ignore[call-overload]
    return Planted(reset(model, index, "count_include_pad", 1 - before), name_of(model, index), ("pool-padding",))


def output_padding(model: Model, place: float) -> Planted:
    index = chosen(model, "ConvTranspose", place)
    return Planted(reset(model, index, "output_padding", [1, 1]), name_of(model, index), ("output-padding",))


def channel_order(model: Model, _: float = 0.0) -> Planted:
    """Channels swapped in the first layer's weights."""
    index = chosen(model, "Conv", 0.0)
    changed = change_weight(model, index, 1, lambda w: w[:, ::-1])
    return Planted(changed, name_of(model, index), ("channel-order",), "preprocessing")


def input_scale(model: Model, factor: float = 255.0) -> Planted:
    index = chosen(model, "Conv", 0.0)
    changed = change_weight(model, index, 1, lambda w: w * factor)
    return Planted(changed, name_of(model, index), ("input-scale",), "preprocessing")


def input_node(model: Model, op_type: str, value: np.ndarray, kinds: tuple[str, ...]) -> Planted:
    """A step of preprocessing in front of the network that the reference does not have."""
    changed = copied(model)
    name = changed.graph.input[0].name
    rename_reads(changed, name, f"{name}/prepared")
    inputs = [name, put(changed, "prepare", value)]
    axis = {"axis": 1} if op_type == "Gather" else {}
    node = helper.make_node(op_type, inputs, [f"{name}/prepared"], name=f"prepare/{op_type}", **axis)
    changed.graph.node.insert(0, node)
    return Planted(changed, node.name, kinds, "preprocessing")


def overflow(model: Model, place: float) -> Planted:
    """Float16 beyond its range: one layer's weights up, the next one's down, so float32 answers as before."""
    readers: dict[str, list[int]] = {}
    for index, node in enumerate(model.graph.node):
        for name in node.input:
            readers.setdefault(name, []).append(index)
    pairs = []
    for index, node in enumerate(model.graph.node):
        if node.op_type != "Conv" or stored(model, node.input[1]) is None:
            continue
        after = readers.get(node.output[0], [])
        if len(after) == 1 and model.graph.node[after[0]].op_type == "Relu":
            then = readers.get(model.graph.node[after[0]].output[0], [])
            if len(then) == 1 and model.graph.node[then[0]].op_type == "Conv":
                pairs.append((index, then[0]))
    one, other = pairs[min(int(place * len(pairs)), len(pairs) - 1)]
    changed = change_weight(model, one, 1, lambda w: w * 2.0**16)
    if len(model.graph.node[one].input) > 2:
        changed = change_weight(changed, one, 2, lambda w: w * 2.0**16)
    changed = change_weight(changed, other, 1, lambda w: w * 2.0**-16)
    return Planted(changed, name_of(model, one), ("fp16-overflow",), "fp16")


def opset_number(model: Model, to: int) -> Planted:
    index = chosen(model, "Softmax", 0.0)
    changed = copied(model)
    for item in changed.opset_import:
        if not item.domain:
            item.version = to
    return Planted(changed, name_of(model, index), ("opset-edited", "softmax-axis"))


# Faults of Q/DQ pairs; each takes a sound Q/DQ network


def pairs_of(model: Model, *, weights: bool = False) -> list[int]:
    """QuantizeLinear nodes of activations, or of stored weights."""
    found = []
    for index, node in enumerate(model.graph.node):
        if node.op_type == "QuantizeLinear" and (stored(model, node.input[0]) is not None) == weights:
            found.append(index)
    return found


def _halves(model: Model, index: int) -> list[onnx.NodeProto]:
    first = model.graph.node[index]
    return [
        first,
        *(node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] == first.output[0]),
    ]


def pair_scale(model: Model, place: float, factor: float) -> Planted:
    """An activation's scale off by a factor."""
    copy = copied(model)
    found = pairs_of(copy)
    index = found[min(int(place * len(found)), len(found) - 1)]
    nodes = _halves(copy, index)
    scale = stored(copy, nodes[0].input[1])
    if scale is None:
        raise LookupError(nodes[0].name)
    new = put(copy, nodes[0].input[1], scale * np.float32(factor))
    for node in nodes:
        node.input[1] = new
    kinds = ("range-coarse",) if factor > 1 else ("range-clips",)
    return Planted(copy, name_of(model, index), kinds, "quantization")


def pair_zero(model: Model, place: float, zero: int = 90) -> Planted:
    copy = copied(model)
    found = pairs_of(copy)
    index = found[min(int(place * len(found)), len(found) - 1)]
    nodes = _halves(copy, index)
    new = put(copy, "zero", np.array(zero, np.int8))
    for node in nodes:
        node.input[2] = new
    return Planted(copy, name_of(model, index), ("zero-point",), "quantization")


def pair_halves(model: Model, place: float, factor: float = 1.3) -> Planted:
    """A DequantizeLinear that does not undo its QuantizeLinear."""
    copy, name = _with_scales(model, place, factor, weights=False)
    return Planted(copy, name, ("scale-mismatch",), "quantization")


def weights_scale(model: Model, place: float, factor: float) -> Planted:
    """Every scale of a weight off by a factor."""
    copy, name = _with_scales(model, place, factor, weights=True)
    return Planted(copy, name, ("weight-range",), "quantization")


def _with_scales(model: Model, place: float, factor: float, *, weights: bool) -> tuple[Model, str]:
    """Multiply the scales of a pair: of weights in both halves, of activations in that which restores alone."""
    copy = copied(model)
    found = pairs_of(copy, weights=weights)
    index = found[min(int(place * len(found)), len(found) - 1)]
    nodes = _halves(copy, index)
    scale = stored(copy, nodes[0].input[1])
    if scale is None:
        raise LookupError(nodes[0].name)
    new = put(copy, nodes[0].input[1], scale * np.float32(factor))
    for node in nodes if weights else nodes[1:]:
        node.input[1] = new
    return copy, name_of(model, index)


def pair_weights(model: Model, place: float, how: str) -> Planted:
    """Weights with one scale, or with scales that do not fit."""
    copy = copied(model)
    found = pairs_of(copy, weights=True)
    ratios = []
    for index in found:
        weight = stored(copy, copy.graph.node[index].input[0])
        amax = np.abs(weight).reshape(len(weight), -1).max(axis=1) if weight is not None else np.ones(1)
        live = amax[amax > 0]
        ratios.append(float(live.max() / live.min()) if live.size else 1.0)
    if how == "per-tensor":
        found = [index for index, ratio in zip(found, ratios, strict=True) if ratio > 12]
    index = found[min(int(place * len(found)), len(found) - 1)]
    nodes = _halves(copy, index)
    weight, scale = stored(copy, nodes[0].input[0]), stored(copy, nodes[0].input[1])
    if weight is None or scale is None:
        raise LookupError(nodes[0].name)
    if how == "per-tensor":
        scale, kinds = np.array(np.abs(weight).max() / 127, np.float32), ("weights-per-tensor",)
        zero = put(copy, "zero", np.array(0, np.int8))
    else:
        scale, kinds = scale * np.float32(0.1), ("weight-range",)
        zero = put(copy, "zero", np.zeros(scale.shape, np.int8))
    new = put(copy, "scale", scale)
    for node in nodes:
        node.input[1], node.input[2] = new, zero
        if how == "per-tensor":
            set_attribute(node, "axis", None)
    return Planted(copy, name_of(model, index), kinds, "quantization")


def pair_at(model: Model, tensor: str, amax: float, kinds: tuple[str, ...]) -> Planted:
    """A pair where there was none: at logits or in a gate."""
    copy = copied(model)
    scale = put(copy, "scale", np.array(amax / 127, np.float32))
    zero = put(copy, "zero", np.array(0, np.int8))
    first = helper.make_node("QuantizeLinear", [tensor, scale, zero], [f"{tensor}/q"], name=f"extra/{tensor}/Q")
    second = helper.make_node(
        "DequantizeLinear", [f"{tensor}/q", scale, zero], [f"{tensor}/dq"], name=f"extra/{tensor}/DQ"
    )
    place = next(i for i, node in enumerate(copy.graph.node) if tensor in node.output)
    if tensor in {item.name for item in copy.graph.output}:
        inner = f"{tensor}/inner"
        maker = copy.graph.node[place]
        maker.output[list(maker.output).index(tensor)] = inner
        first.input[0], second.output[0] = inner, tensor
    else:
        rename_reads(copy, tensor, second.output[0])
    copy.graph.node.insert(place + 1, first)
    copy.graph.node.insert(place + 2, second)
    return Planted(copy, first.name, kinds, "quantization")
