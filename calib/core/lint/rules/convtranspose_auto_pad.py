"""ConvTranspose with automatic padding."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import issue, operator
from calib.core.lint.subject import Subject, ints, text


def check(subject: Subject) -> Iterator[Sighting]:
    """List each ConvTranspose with SAME padding, or with an output_shape."""
    for node in subject.nodes("ConvTranspose"):
        auto, extra, shape = text(node, "auto_pad", "NOTSET"), ints(node, "output_padding"), ints(node, "output_shape")
        if auto.startswith("SAME"):
            added = f" with output_padding {extra}" if extra and any(extra) else ""
            yield at(node, auto + added, everywhere("warning") if added or shape else None)
        elif shape:
            yield at(node, f"output_shape {shape}")


RULE = Rule(
    id="convtranspose-auto-pad",
    title="ConvTranspose leaves its padding to the runtime",
    why=(
        "With auto_pad SAME the specification derives the pads from output length = input * stride; together with "
        "output_padding its shape inference and the runtimes disagree by that padding, and on which side an odd pad "
        "falls they have differed too."
    ),
    remedy="write explicit pads (onnx.version_converter does not; the exporter can), and drop auto_pad",
    sources=(operator("ConvTranspose"), issue("onnx/onnx", 4299)),
    levels=everywhere("note"),
    check=check,
)
