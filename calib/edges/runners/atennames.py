"""Operators of PyTorch under ONNX's names, with the parameters and weights that ONNX would show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.stages.diagnose.trace import Value

Translation = tuple[str, dict[str, Value], dict[str, NDArray[Any]]]
Arguments = Mapping[str, Any]

PLAIN: Mapping[str, str] = {
    "relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh", "hardswish": "HardSwish", "hardsigmoid": "HardSigmoid",
    "silu": "Swish", "gelu": "Gelu", "softplus": "Softplus", "exp": "Exp", "log": "Log", "sqrt": "Sqrt",
    "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "maximum": "Max", "minimum": "Min", "pow": "Pow",
    "mm": "MatMul", "bmm": "MatMul", "matmul": "MatMul", "mean": "ReduceMean", "sum": "ReduceSum", "amax": "ReduceMax",
    "cat": "Concat", "permute": "Transpose", "transpose": "Transpose", "t": "Transpose", "view": "Reshape",
    "_unsafe_view": "Reshape", "reshape": "Reshape", "slice": "Slice", "select": "Gather", "split": "Split",
    "split_with_sizes": "Split", "unsqueeze": "Unsqueeze", "squeeze": "Squeeze", "expand": "Expand",
    "constant_pad_nd": "Pad", "reflection_pad2d": "Pad", "replication_pad2d": "Pad", "abs": "Abs", "neg": "Neg",
    "_adaptive_avg_pool2d": "AveragePool", "pixel_shuffle": "DepthToSpace", "grid_sampler_2d": "GridSample",
    "native_group_norm": "GroupNormalization", "native_layer_norm": "LayerNormalization", "elu": "Elu",
    "erf": "Erf", "rsqrt": "Reciprocal", "mish": "Mish", "argmax": "ArgMax",
}  # fmt: skip


def translate(operator: str, arguments: Arguments, names: Mapping[int, str], results: Sequence[Any]) -> Translation:
    """Say an operator as ONNX would.

    Args:
        operator: name in ``aten``, without the trailing underscore.
        arguments: of the call, by formal name.
        names: identities of the tensors that follow from the network's input; the others are constants.
        results: what the call answered.
    """
    reader = READERS.get(operator)
    if reader is not None:
        return reader(arguments, names, results)
    kind = PLAIN.get(operator, f"aten.{operator}")
    constants = {
        name: array(value)
        for name, value in arguments.items()
        if hasattr(value, "detach") and id(value) not in names and value.numel()
    }
    return kind, {}, constants


def array(tensor: Any) -> NDArray[Any]:
    """A tensor as an array; short floats as float32."""
    plain = tensor.detach().cpu()
    return np.array(plain.float().numpy() if plain.is_floating_point() else plain.numpy())


def _weights(arguments: Arguments, **named: str) -> dict[str, NDArray[Any]]:
    return {new: array(arguments[old]) for new, old in named.items() if arguments.get(old) is not None}


def _integers(value: Any) -> tuple[int, ...]:
    return tuple(int(item) for item in value) if isinstance(value, list | tuple) else (int(value), int(value))


def _convolution(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    pads = _integers(arguments["padding"])
    parameters: dict[str, Value] = {
        "strides": _integers(arguments["stride"]),
        "pads": pads * 2,
        "dilations": _integers(arguments["dilation"]),
        "group": int(arguments["groups"]),
    }
    transposed = bool(arguments.get("transposed"))
    if transposed:
        parameters["output_padding"] = _integers(arguments["output_padding"])
    return "ConvTranspose" if transposed else "Conv", parameters, _weights(arguments, W="weight", B="bias")


def _batch_norm(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    training = bool(arguments.get("training", False)) or arguments.get("running_mean") is None
    parameters: dict[str, Value] = {"epsilon": float(np.float32(arguments["eps"])), "training_mode": int(training)}
    found = _weights(arguments, scale="weight", B="bias", input_mean="running_mean", input_var="running_var")
    return "BatchNormalization", parameters, found


def _hardtanh(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    low = arguments.get("min_val", arguments.get("min", -1.0))
    high = arguments.get("max_val", arguments.get("max", 1.0))
    bounds = {"min": low, "max": high}
    return "Clip", {name: float(np.float32(value)) for name, value in bounds.items() if value is not None}, {}


def _pool(kind: str) -> Callable[..., Translation]:
    def read(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
        kernel = _integers(arguments["kernel_size"])
        parameters: dict[str, Value] = {
            "kernel_shape": kernel,
            "strides": _integers(arguments.get("stride") or kernel),
            "pads": _integers(arguments.get("padding", 0)) * 2,
            "ceil_mode": int(bool(arguments.get("ceil_mode", False))),
        }
        if kind == "AveragePool":
            parameters["count_include_pad"] = int(bool(arguments.get("count_include_pad", True)))
        else:
            parameters["dilations"] = _integers(arguments.get("dilation", 1))
        return kind, parameters, {}

    return read


def _resize(mode: str) -> Callable[..., Translation]:
    def read(arguments: Arguments, _: Mapping[int, str], results: Sequence[Any]) -> Translation:
        parameters: dict[str, Value] = {"mode": mode, "size": tuple(int(item) for item in results[0].shape)}
        if mode == "nearest":
            parameters |= {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
        else:
            aligned = bool(arguments.get("align_corners", False))
            parameters["coordinate_transformation_mode"] = "align_corners" if aligned else "half_pixel"
        if mode == "cubic":
            parameters["cubic_coeff_a"] = -0.75
        return "Resize", parameters, {}

    return read


def _softmax(arguments: Arguments, _: Mapping[int, str], results: Sequence[Any]) -> Translation:
    return "Softmax", {"axis": int(arguments["dim"]) % max(results[0].dim(), 1)}, {}


def _cat(arguments: Arguments, _: Mapping[int, str], results: Sequence[Any]) -> Translation:
    return "Concat", {"axis": int(arguments.get("dim", 0)) % max(results[0].dim(), 1)}, {}


def _leaky(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    return "LeakyRelu", {"alpha": float(np.float32(arguments.get("negative_slope", 0.01)))}, {}


def _prelu(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    found = _weights(arguments, slope="weight")
    return "PRelu", {}, {name: value.reshape(-1, 1, 1) for name, value in found.items()}


def _linear(arguments: Arguments, _: Mapping[int, str], __: Sequence[Any]) -> Translation:
    return "Gemm", {}, _weights(arguments, B="weight" if "weight" in arguments else "mat2", C="bias")


def _addmm(arguments: Arguments, names: Mapping[int, str], __: Sequence[Any]) -> Translation:
    constant = {new: arguments[old] for new, old in (("B", "mat2"), ("C", "self")) if id(arguments[old]) not in names}
    return "Gemm", {}, {name: array(tensor) for name, tensor in constant.items()}


READERS: Mapping[str, Callable[[Arguments, Mapping[int, str], Sequence[Any]], Translation]] = {
    "convolution": _convolution,
    "native_batch_norm": _batch_norm,
    "cudnn_batch_norm": _batch_norm,
    "_native_batch_norm_legit": _batch_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
    "hardtanh": _hardtanh,
    "relu6": _hardtanh,
    "clamp": _hardtanh,
    "clamp_min": _hardtanh,
    "max_pool2d_with_indices": _pool("MaxPool"),
    "max_pool2d": _pool("MaxPool"),
    "avg_pool2d": _pool("AveragePool"),
    "upsample_bilinear2d": _resize("linear"),
    "upsample_nearest2d": _resize("nearest"),
    "upsample_bicubic2d": _resize("cubic"),
    "_softmax": _softmax,
    "cat": _cat,
    "leaky_relu": _leaky,
    "_prelu_kernel": _prelu,
    "prelu": _prelu,
    "linear": _linear,
    "addmm": _addmm,
}
