"""Arithmetic, comparisons and functions of single elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, same_float

TYPES: Mapping[int, torch.dtype] = {
    1: torch.float32, 2: torch.uint8, 3: torch.int8, 5: torch.int16, 6: torch.int32, 7: torch.int64, 9: torch.bool,
    10: torch.float16, 11: torch.float64, 16: torch.bfloat16,
}  # fmt: skip
"""PyTorch's type by the number of ONNX's."""


def _unary(function: Callable[[Tensor], Tensor]) -> Operator:
    def apply(call: Call, x: Tensor) -> Tensor:
        del call
        return function(x)

    return apply


def _binary(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    def apply(call: Call, one: Tensor, other: Tensor) -> Tensor:
        del call
        return function(*same_float(one, other))

    return apply


def _variadic(function: Callable[[Tensor, Tensor], Tensor]) -> Operator:
    def apply(call: Call, *operands: Tensor) -> Tensor:
        del call
        return reduce(function, same_float(*operands))

    return apply


def _divide(one: Tensor, other: Tensor) -> Tensor:
    """Divide; whole numbers are cut off towards zero."""
    if one.is_floating_point() or other.is_floating_point():
        return one / other
    return torch.div(one, other, rounding_mode="trunc")


def _mean(call: Call, *operands: Tensor) -> Tensor:
    del call
    return reduce(torch.add, same_float(*operands)) / len(operands)


def _power(call: Call, base: Tensor, exponent: Tensor) -> Tensor:
    """Raise to a power; the answer has the base's type."""
    del call
    base, exponent = same_float(base, exponent)
    if exponent.numel() == 1 and exponent.device.type == "cpu":
        return torch.pow(base, exponent.item()).to(base.dtype)
    return torch.pow(base, exponent).to(base.dtype)


def _modulo(call: Call, one: Tensor, other: Tensor) -> Tensor:
    one, other = same_float(one, other)
    return torch.fmod(one, other) if call.get("fmod", 0) else torch.remainder(one, other)


def _where(call: Call, condition: Tensor, one: Tensor, other: Tensor) -> Tensor:
    del call
    return torch.where(*same_float(condition, one, other))


def _clip(call: Call, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Clip; the bounds are attributes below operator set 11, then scalar inputs."""
    least = call.get("min") if low is None else low.item()
    most = call.get("max") if high is None else high.item()
    return x.clone() if least is None and most is None else torch.clamp(x, least, most)


def _cast(call: Call, x: Tensor, like: Tensor | None = None) -> Tensor:
    kind = TYPES.get(int(call.get("to", 0))) if like is None else like.dtype
    if kind is None:
        raise call.refuse("a type that PyTorch has", f"type {call.get('to')}")
    return x.to(kind)


def _is_inf(call: Call, x: Tensor) -> Tensor:
    found = torch.isinf(x)
    return found & ((x > 0) & bool(call.get("detect_positive", 1)) | (x < 0) & bool(call.get("detect_negative", 1)))


def _prelu(call: Call, x: Tensor, slope: Tensor) -> Tensor:
    del call
    x, slope = same_float(x, slope)
    return torch.where(x >= 0, x, x * slope)


def _gelu(call: Call, x: Tensor) -> Tensor:
    return F.gelu(x, approximate=call.get("approximate", "none"))


def _hard_sigmoid(call: Call, x: Tensor) -> Tensor:
    return torch.clamp(x * call.get("alpha", 0.2) + call.get("beta", 0.5), 0, 1)


def _softmax(call: Call, x: Tensor) -> Tensor:
    return _along_classes(call, x, torch.softmax)


def _log_softmax(call: Call, x: Tensor) -> Tensor:
    return _along_classes(call, x, torch.log_softmax)


def _hardmax(call: Call, x: Tensor) -> Tensor:
    def first_largest(values: Tensor, axis: int) -> Tensor:
        return torch.zeros_like(values).scatter_(axis, values.argmax(axis, keepdim=True), 1)

    return _along_classes(call, x, first_largest)


def _along_classes(call: Call, x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Normalise along an axis; below operator set 13 over everything from the axis on."""
    axis = int(call.get("axis", -1 if call.opset >= 13 else 1))
    if call.opset >= 13:
        return function(x, axis)
    return (
        function(x.flatten(axis % x.ndim), -1).reshape(x.shape)
        if axis % x.ndim
        else (function(x.reshape(1, -1), -1).reshape(x.shape))
    )


def _swish(call: Call, x: Tensor) -> Tensor:
    return x * torch.sigmoid(x * call.get("alpha", 1.0))


def _thresholded_relu(call: Call, x: Tensor) -> Tensor:
    return torch.where(x > call.get("alpha", 1.0), x, torch.zeros_like(x))


def _selu(call: Call, x: Tensor) -> Tensor:
    gamma, alpha = call.get("gamma", 1.0507009873554805), call.get("alpha", 1.6732632423543772)
    return gamma * F.elu(x, alpha)


def _shrink(call: Call, x: Tensor) -> Tensor:
    bias, limit = call.get("bias", 0.0), call.get("lambd", 0.5)
    return torch.where(x < -limit, x + bias, torch.where(x > limit, x - bias, torch.zeros_like(x)))


def _keep(call: Call, x: Tensor, *others: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
    """Pass a tensor on: Identity, and Dropout, which does nothing outside its own training."""
    del others
    return (x, torch.ones_like(x, dtype=torch.bool)) if len(call.node.outputs) > 1 else x


FUNCTIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "Abs": torch.abs, "Acos": torch.acos, "Acosh": torch.acosh, "Asin": torch.asin, "Asinh": torch.asinh,
    "Atan": torch.atan, "Atanh": torch.atanh, "Ceil": torch.ceil, "Cos": torch.cos, "Cosh": torch.cosh,
    "Erf": torch.erf, "Exp": torch.exp, "Floor": torch.floor, "IsNaN": torch.isnan, "Log": torch.log,
    "Mish": F.mish, "Neg": torch.neg, "Not": torch.logical_not, "Reciprocal": torch.reciprocal, "Relu": F.relu,
    "Round": torch.round, "Sigmoid": torch.sigmoid, "Sign": torch.sign, "Sin": torch.sin, "Sinh": torch.sinh,
    "Softplus": F.softplus, "Softsign": F.softsign, "Sqrt": torch.sqrt, "Tan": torch.tan, "Tanh": torch.tanh,
    "HardSwish": F.hardswish,
}  # fmt: skip
PAIRS: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "Add": torch.add, "Sub": torch.sub, "Mul": torch.mul, "Div": _divide, "Equal": torch.eq, "Greater": torch.gt,
    "GreaterOrEqual": torch.ge, "Less": torch.lt, "LessOrEqual": torch.le, "And": torch.logical_and,
    "Or": torch.logical_or, "Xor": torch.logical_xor,
}  # fmt: skip
OPERATORS: Mapping[str, Operator] = {
    **{name: _unary(function) for name, function in FUNCTIONS.items()},
    **{name: _binary(function) for name, function in PAIRS.items()},
    **{name: _variadic(function) for name, function in
       {"Sum": torch.add, "Min": torch.minimum, "Max": torch.maximum}.items()},
    "Mean": _mean, "Pow": _power, "Mod": _modulo, "Where": _where, "Clip": _clip, "Cast": _cast, "CastLike": _cast,
    "IsInf": _is_inf, "PRelu": _prelu, "Gelu": _gelu, "HardSigmoid": _hard_sigmoid, "Softmax": _softmax,
    "LogSoftmax": _log_softmax, "Hardmax": _hardmax, "Swish": _swish, "ThresholdedRelu": _thresholded_relu,
    "Selu": _selu, "Shrink": _shrink, "Identity": _keep, "Dropout": _keep,
    "LeakyRelu": lambda call, x: F.leaky_relu(x, call.get("alpha", 0.01)),
    "Elu": lambda call, x: F.elu(x, call.get("alpha", 1.0)),
    "Celu": lambda call, x: F.celu(x, call.get("alpha", 1.0)),
}  # fmt: skip
