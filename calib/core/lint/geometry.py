"""Windows of convolutions and pools: their settings and the lengths they make, by the ONNX operators' formulas."""

from __future__ import annotations

from dataclasses import dataclass

from calib.core.graph import Node
from calib.core.lint.subject import Subject, ints, text

WINDOWS = ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "ConvInteger", "QLinearConv", "DeformConv")
POOLS = ("AveragePool", "MaxPool", "LpPool")


@dataclass(frozen=True)
class Window:
    """Kernel, stride, dilation and padding of a node, one number a spatial axis.

    Attributes:
        node: the node.
        kernel: as the attribute or the weight says; empty where neither does.
        stride: 1 by default.
        dilation: 1 by default.
        pads: begins, then ends; 0 by default.
        auto_pad: ``NOTSET``, ``SAME_UPPER``, ``SAME_LOWER`` or ``VALID``.
        before: lengths of the input's spatial axes, None where dynamic; empty where the rank is unknown.
        faults: attributes whose number of elements does not fit the kernel; their defaults stand in.
    """

    node: Node
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str
    before: tuple[int | None, ...]
    faults: tuple[str, ...]

    @property
    def extent(self) -> tuple[int, ...]:
        """Pixels that the kernel spans, dilation included."""
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilation, strict=False))

    @property
    def padded(self) -> tuple[int | None, ...]:
        """Lengths of the input with its explicit padding."""
        half = len(self.pads) // 2
        sums = [self.pads[i] + self.pads[i + half] for i in range(half)] or [0] * len(self.before)
        return tuple(None if one is None else one + more for one, more in zip(self.before, sums, strict=False))


def window(node: Node, subject: Subject) -> Window:
    """Read the window of a convolution or pool."""
    kernel = ints(node, "kernel_shape") or _weight_kernel(node, subject)
    rank = len(kernel)
    shape = subject.network.shapes.get(node.input(0)) or ()
    faults: list[str] = []

    def read(key: str, default: tuple[int, ...]) -> tuple[int, ...]:
        found = ints(node, key)
        if found is not None and kernel and len(found) != len(default):
            faults.append(f"{key} of {len(found)} numbers for a kernel of {rank} axes")
            return default
        return default if found is None else found

    return Window(
        node=node,
        kernel=kernel,
        stride=read("strides", (1,) * rank),
        dilation=read("dilations", (1,) * rank),
        pads=read("pads", (0,) * (2 * rank)),
        auto_pad=text(node, "auto_pad", "NOTSET") or "NOTSET",
        before=shape[2:],
        faults=tuple(faults),
    )


def _weight_kernel(node: Node, subject: Subject) -> tuple[int, ...]:
    shape = subject.network.shapes.get(node.input(1)) if node.op_type not in POOLS else None
    return tuple(length or 0 for length in shape[2:]) if shape else ()


def transposed_lengths(found: Window, output_padding: tuple[int, ...]) -> tuple[int | None, ...]:
    """Answer the output lengths of a ConvTranspose with explicit padding.

    ``stride * (input - 1) + output_padding + extent - pads``, as the operator's specification has it.
    """
    half = len(found.pads) // 2
    made: list[int | None] = []
    for index, before in enumerate(found.before[: min(half, len(found.kernel))]):
        extra = output_padding[index] if index < len(output_padding) else 0
        pads = found.pads[index] + found.pads[index + half]
        made.append(None if before is None else found.stride[index] * (before - 1) + extra + found.extent[index] - pads)
    return tuple(made)
