"""ConvTranspose with output_padding."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.graph import Node, Shape
from calib.core.lint.geometry import Window, transposed_lengths, window
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TORCH_CONV_TRANSPOSE, issue, operator
from calib.core.lint.subject import Subject, ints


def check(subject: Subject) -> Iterator[Sighting]:
    """List each ConvTranspose with output_padding, and those whose declared size or padding cannot be right."""
    declared = _declared(subject)
    for node in subject.nodes("ConvTranspose"):
        found, extra = window(node, subject), ints(node, "output_padding") or ()
        if found.auto_pad != "NOTSET" or ints(node, "output_shape"):
            continue
        made = transposed_lengths(found, extra)
        yield from _sightings(node, found, extra, made, declared.get(node.outputs[0]))


def _sightings(
    node: Node, found: Window, extra: tuple[int, ...], made: tuple[int | None, ...], declared: Shape | None
) -> Iterator[Sighting]:
    wanted = (declared or ())[2:]
    pairs = [(one, other) for one, other in zip(made, wanted, strict=False) if one is not None and other is not None]
    if any(one != other for one, other in pairs):
        sizes = f"{'x'.join(str(one) for one, _ in pairs)} by its settings, {'x'.join(str(two) for _, two in pairs)}"
        yield at(node, f"makes {sizes} as the file declares", everywhere("error"))
    elif any(pad >= max(step, wide) for pad, step, wide in zip(extra, found.stride, found.dilation, strict=False)):
        yield at(node, f"output_padding {extra} is not below stride {found.stride} or dilation", everywhere("error"))
    elif any(extra):
        sizes = "x".join("?" if length is None else str(length) for length in made)
        yield at(node, f"output_padding {extra}, makes {sizes}")


def _declared(subject: Subject) -> dict[str, Shape]:
    """Shapes that the file itself states, inference left aside."""
    graph = subject.model.graph
    stated: dict[str, Shape] = {}
    for value in (*graph.value_info, *graph.output):
        if value.type.tensor_type.HasField("shape"):
            dims = value.type.tensor_type.shape.dim
            stated[value.name] = tuple(dim.dim_value if dim.dim_value > 0 else None for dim in dims)
    return stated


RULE = Rule(
    id="convtranspose-output-padding",
    title="ConvTranspose with output_padding",
    why=(
        "output_padding adds rows at the end so that the size doubles exactly (28 to 56). Converters have dropped it, "
        "which leaves one row less (55) and shifts or breaks the skip connection. By the specification the length is "
        "stride * (input - 1) + output_padding + kernel extent - pads."
    ),
    remedy="compare the output size in every runtime; a kernel of 2 or 4 with stride 2 needs no output_padding",
    sources=(
        operator("ConvTranspose"),
        TORCH_CONV_TRANSPOSE,
        issue("NVIDIA-AI-IOT/torch2trt", 734),
        "https://github.com/apache/tvm/pull/18635",
        issue("pytorch/pytorch", 104206),
    ),
    levels=everywhere("note"),
    check=check,
)
