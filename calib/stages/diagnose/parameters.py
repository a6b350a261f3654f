"""What decides a node's arithmetic, in one form whatever the operator set: attributes, defaults, constant inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.graph import Node
from calib.stages.diagnose.trace import Arrays, Value

FEW = 64
"""Constants of integers up to this length are parameters; longer ones are weights."""
IRRELEVANT: Mapping[str, frozenset[str]] = {
    "BatchNormalization": frozenset({"momentum", "spatial", "is_test", "consumed_inputs"}),
    "MaxPool": frozenset({"storage_order"}),
    "Conv": frozenset({"kernel_shape"}),
    "ConvTranspose": frozenset({"kernel_shape"}),
    "Upsample": frozenset({"height_scale", "width_scale"}),
    "Reshape": frozenset({"allowzero"}),
    "DequantizeLinear": frozenset({"output_dtype", "block_size"}),
    "QuantizeLinear": frozenset({"output_dtype", "block_size", "precision", "saturate"}),
}
"""Attributes that do not change what is computed here."""
FLOAT_PARAMETERS = frozenset({("Clip", "min"), ("Clip", "max"), ("Pad", "constant_value"), ("Resize", "scales")})
SAME_NAME = {"Upsample": "Resize", "TRT_INT8QuantizeLinear": "QuantizeLinear"}


@cache
def formal_inputs(op_type: str, domain: str, version: int) -> tuple[tuple[str, ...], bool]:
    """Names of an operator's inputs, and whether the last may be repeated."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return (), False
    names = tuple(item.name for item in schema.inputs)
    variadic = bool(names) and schema.inputs[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
    return names, variadic


@cache
def attribute_defaults(op_type: str, domain: str, version: int) -> Mapping[str, Value]:
    """Default of every attribute that has one."""
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return {}
    found = {}
    for name, attribute in schema.attributes.items():
        if attribute.default_value is not None and attribute.default_value.ByteSize():
            found[name] = plain(onnx.helper.get_attribute_value(attribute.default_value))
    return found


def slot_name(node: Node, slot: int, version: int) -> str:
    """Name of an input slot: the schema's, numbered where it repeats."""
    names, variadic = formal_inputs(node.op_type, node.domain, version)
    if slot < len(names) - (1 if variadic else 0):
        return names[slot]
    return f"{names[-1] if variadic else 'input'}{slot}"


def plain(value: Any) -> Value:
    """A parameter as a plain hashable value; floats rounded to float32, as files hold them."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, np.ndarray):
        return tuple(plain(item) for item in value.reshape(-1).tolist()) if value.ndim else plain(value.item())
    if isinstance(value, float):
        return float(np.float32(value))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return value if isinstance(value, int | str) or value is None else repr(value)


def read_parameters(
    node: Node, version: int, constants: Mapping[int, NDArray[Any]], shapes: Mapping[str, tuple[int, ...]]
) -> tuple[dict[str, Value], dict[str, NDArray[Any]]]:
    """Sort a node's attributes and constant inputs into parameters and weights.

    Args:
        node: the node.
        version: version of its operator set.
        constants: its constant inputs by slot.
        shapes: shapes of its data inputs and of its outputs as they ran, by name.
    """
    parameters: dict[str, Value] = dict(attribute_defaults(node.op_type, node.domain, version))
    parameters |= {name: plain(value) for name, value in node.attributes.items()}
    weights: dict[str, NDArray[Any]] = {}
    for slot, array in constants.items():
        name = slot_name(node, slot, version)
        if _is_parameter(node.op_type, name, array):
            parameters[name] = _few(array)
        else:
            weights[name] = array
    for name in IRRELEVANT.get(node.op_type, ()):
        parameters.pop(name, None)
    if not node.domain:
        _normalise(node, parameters, shapes, weights)
    return parameters, weights


def _few(array: NDArray[Any]) -> Value:
    return plain(array.reshape(()) if array.size == 1 else array)


def _is_parameter(op_type: str, name: str, array: NDArray[Any]) -> bool:
    if array.dtype.kind in "iub" and op_type not in {"DequantizeLinear", "QLinearConv", "Gather"}:
        return array.size <= FEW
    return (op_type, name) in FLOAT_PARAMETERS or array.dtype.kind not in "fiubV"


def _normalise(
    node: Node, parameters: dict[str, Value], shapes: Mapping[str, tuple[int, ...]], weights: Arrays
) -> None:
    """Write one meaning in one way."""
    if node.op_type in {"Resize", "Upsample"}:
        _normalise_resize(node, parameters, shapes)
    elif node.op_type in {"Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool"}:
        _normalise_window(node, parameters, shapes, weights)
    elif node.op_type == "Clip":
        for name in ("min", "max"):
            if parameters.get(name) in (None, float(np.finfo(np.float32).max), -float(np.finfo(np.float32).max)):
                parameters.pop(name, None)
    elif node.op_type.startswith("Reduce") and "axes" in parameters:
        rank = len(shapes.get(node.input(0), ())) or 1
        parameters["axes"] = tuple(sorted(axis % rank for axis in _ints(parameters["axes"])))
        parameters.pop("noop_with_empty_axes", None)
    elif "axis" in parameters and isinstance(parameters["axis"], int) and node.input(0) in shapes:
        parameters["axis"] = parameters["axis"] % (len(shapes[node.input(0)]) or 1)


def _ints(value: Value) -> tuple[int, ...]:
    return (value,) if isinstance(value, int) else tuple(value) if isinstance(value, tuple) else ()


def _normalise_resize(node: Node, parameters: dict[str, Value], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Sizes and scales to the output's size and the scales that are used; modes only where they matter."""
    given = parameters.pop("scales", None)
    for name in ("sizes", "roi", "extrapolation_value", "keep_aspect_ratio_policy", "axes"):
        parameters.pop(name, None)
    before, after = shapes.get(node.input(0)), shapes.get(node.outputs[0])
    if node.op_type == "Upsample":
        parameters |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        parameters["mode"] = "linear" if parameters.get("mode") in {"linear", "bilinear"} else "nearest"
    if after is not None:
        parameters["size"] = tuple(after)
    if before is not None and after is not None:
        exact = tuple(out / length if length else 1.0 for out, length in zip(after, before, strict=True))
        if isinstance(given, tuple) and len(given) == len(exact):
            parameters["scales"] = tuple(float(item) for item in given)
        else:
            parameters["scales"] = exact
    if parameters.get("mode") != "nearest":
        parameters.pop("nearest_mode", None)
    if parameters.get("mode") != "cubic":
        parameters.pop("cubic_coeff_a", None)
        parameters.pop("exclude_outside", None)


def _normalise_window(
    node: Node, parameters: dict[str, Value], shapes: Mapping[str, tuple[int, ...]], weights: Arrays
) -> None:
    """Strides, dilations, pads and groups written out; automatic padding as the pads that it amounts to."""
    rank = _window_rank(node, parameters, shapes, weights)
    for name in ("strides", "dilations"):
        parameters.setdefault(name, (1,) * rank)
    if node.op_type == "AveragePool" and not any(item != 1 for item in _ints(parameters["dilations"])):
        parameters.pop("dilations", None)
    automatic = parameters.pop("auto_pad", "NOTSET")
    if node.op_type in {"Conv", "ConvTranspose"}:
        parameters.setdefault("group", 1)
    if node.op_type == "ConvTranspose":
        parameters.pop("output_shape", None)
        parameters.setdefault("output_padding", (0,) * rank)
    if automatic in {"SAME_UPPER", "SAME_LOWER"} and node.op_type != "ConvTranspose":
        parameters["pads"] = tuple(_same_pads(node, parameters, shapes, weights, upper=automatic == "SAME_UPPER"))
    parameters.setdefault("pads", (0,) * (2 * rank))


def _window_rank(
    node: Node, parameters: Mapping[str, Value], shapes: Mapping[str, tuple[int, ...]], weights: Arrays
) -> int:
    """Number of spatial axes, told without shapes too, for a network that does not run."""
    if node.input(0) in shapes:
        return max(len(shapes[node.input(0)]) - 2, 0)
    if "W" in weights:
        return weights["W"].ndim - 2
    return len(_ints(parameters.get("kernel_shape"))) or len(_ints(parameters.get("pads"))) // 2


def _same_pads(
    node: Node,
    parameters: Mapping[str, Value],
    shapes: Mapping[str, tuple[int, ...]],
    weights: Arrays,
    *,
    upper: bool,
) -> Iterator[int]:
    kernel = _ints(parameters.get("kernel_shape")) or tuple(weights["W"].shape[2:] if "W" in weights else ())
    lengths, strides = shapes.get(node.input(0), ())[2:], _ints(parameters["strides"])
    dilations = _ints(parameters.get("dilations")) or (1,) * len(kernel)
    totals = [
        max((-(-length // stride) - 1) * stride + (size - 1) * gap + 1 - length, 0)
        for length, size, stride, gap in zip(lengths, kernel, strides, dilations, strict=False)
    ]
    small, large = [total // 2 for total in totals], [total - total // 2 for total in totals]
    yield from (small if upper else large)
    yield from (large if upper else small)
