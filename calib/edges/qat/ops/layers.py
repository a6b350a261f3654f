"""Convolutions and matrix products."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F  # noqa: N812 - PyTorch's own convention

from calib.edges.qat.ops.call import Call, Operator, Tensor, aligned, same_float

CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


def window_pads(
    call: Call, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Work out the padding before and behind each axis, ``auto_pad`` included.

    Args:
        call: a convolution or a pooling.
        sizes: lengths of the spatial axes.
        kernel: window lengths.
        strides: steps.
        dilations: distances inside a window.
    """
    rank = len(kernel)
    mode = call.get("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = call.ints("pads") or [0] * (2 * rank)
        return pads[:rank], pads[rank:]
    if mode == "VALID":
        return [0] * rank, [0] * rank
    total = [
        max(0, (-(-size // stride) - 1) * stride + (length - 1) * dilation + 1 - size)
        for size, length, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True)
    ]
    small = [item // 2 for item in total]
    large = [item - less for item, less in zip(total, small, strict=True)]
    return (small, large) if mode == "SAME_UPPER" else (large, small)


def pad_list(before: Sequence[int], behind: Sequence[int]) -> list[int]:
    """Write paddings as :func:`torch.nn.functional.pad` takes them: last axis first."""
    pairs = list(zip(before, behind, strict=True))
    return [amount for pair in reversed(pairs) for amount in pair]


def _conv(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    rank = weight.ndim - 2
    strides, dilations = (call.ints(name, [1] * rank) or [] for name in ("strides", "dilations"))
    before, behind = window_pads(call, x.shape[2:], weight.shape[2:], strides, dilations)
    if before != behind:
        x, before = F.pad(x, pad_list(before, behind)), [0] * rank
    return CONVOLUTIONS[rank](x, weight, bias, strides, before, dilations, int(call.get("group", 1)))


def _conv_transpose(call: Call, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Transposed convolution; what PyTorch cannot pad is computed whole, then cut or filled up."""
    rank = weight.ndim - 2
    strides, dilations = (call.ints(name, [1] * rank) or [] for name in ("strides", "dilations"))
    extra = call.ints("output_padding", [0] * rank) or []
    group = int(call.get("group", 1))
    before, behind, extra = _transposed_pads(call, x.shape[2:], weight.shape[2:], (strides, dilations), extra)
    plain = before == behind and all(
        more < max(stride, dilation) for more, stride, dilation in zip(extra, strides, dilations, strict=True)
    )
    function = TRANSPOSED[rank]
    if plain and min(before) >= 0:
        return function(x, weight, bias, strides, before, extra, group, dilations)
    whole = function(x, weight, None, strides, 0, 0, group, dilations)
    ends = [more - cut for more, cut in zip(extra, behind, strict=True)]
    shaped = F.pad(whole, pad_list([-cut for cut in before], ends))
    return shaped if bias is None else shaped + bias.reshape(-1, *[1] * rank)


def _transposed_pads(
    call: Call,
    sizes: Sequence[int],
    kernel: Sequence[int],
    steps: tuple[Sequence[int], Sequence[int]],
    extra: list[int],
) -> tuple[list[int], list[int], list[int]]:
    """Work out pads of a transposed convolution, where ``output_shape`` or ``auto_pad`` may state them indirectly."""
    rank, (strides, dilations) = len(kernel), steps
    full = [
        stride * (size - 1) + more + (length - 1) * dilation + 1
        for size, length, stride, dilation, more in zip(sizes, kernel, strides, dilations, extra, strict=True)
    ]
    mode = call.get("auto_pad", "NOTSET")
    wanted = call.ints("output_shape")
    if wanted is None and mode in ("NOTSET", "", "VALID"):
        pads = (call.ints("pads") or [0] * (2 * rank)) if mode != "VALID" else [0] * (2 * rank)
        return pads[:rank], pads[rank:], extra
    if wanted is None:
        wanted = [size * stride for size, stride in zip(sizes, strides, strict=True)]
    total = [max(0, length - size) for length, size in zip(full, wanted[-rank:], strict=True)]
    more = [max(0, size - length) for length, size in zip(full, wanted[-rank:], strict=True)]
    small = [item // 2 for item in total]
    large = [item - less for item, less in zip(total, small, strict=True)]
    before, behind = (small, large) if mode == "SAME_UPPER" else (large, small)
    return before, behind, [one + other for one, other in zip(extra, more, strict=True)]


def _gemm(call: Call, a: Tensor, b: Tensor, c: Tensor | None = None) -> Tensor:
    a = a.transpose(0, 1) if call.get("transA", 0) else a
    b = b.transpose(0, 1) if call.get("transB", 0) else b
    product = torch.matmul(*same_float(a, b))
    alpha, beta = float(call.get("alpha", 1.0)), float(call.get("beta", 1.0))
    product = product if alpha == 1 else product * alpha
    if c is None:
        return product
    product, c = aligned(product, c)
    return product + (c if beta == 1 else c * beta)


def _matmul(call: Call, a: Tensor, b: Tensor) -> Tensor:
    del call
    return torch.matmul(*same_float(a, b))


def _einsum(call: Call, *operands: Tensor) -> Tensor:
    return torch.einsum(str(call.get("equation")), *same_float(*operands))


OPERATORS: Mapping[str, Operator] = {
    "Conv": _conv, "ConvTranspose": _conv_transpose, "Gemm": _gemm, "MatMul": _matmul, "Einsum": _einsum,
}  # fmt: skip
