"""Concatenations of wide and narrow ranges."""

from __future__ import annotations

import math
from collections.abc import Iterator

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.strip import dequantizes, quantizes
from calib.core.lint.subject import Subject

RATIO = 16.0
"""Ranges further apart cost the narrow side four bits of seven."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List inputs of concatenations that lose bits to a range they share, as far as ranges are known.

    In a Q/DQ network the shared range is that of a pair on the result; without one, nothing is shared. With observed
    ranges of a float network it is what INT8 will give the result.
    """
    for node in subject.nodes("Concat"):
        if not any(name in subject.activations for name in node.outputs):
            continue
        known = {name: amax for name in node.inputs if (amax := _range(name, subject)) is not None}
        shared = _shared(node, known, subject)
        for name, amax in known.items():
            if shared is not None and amax > 0 and shared / amax > RATIO:
                bits = math.log2(shared / amax)
                yield at(node, f"{name!r} has amax {amax:.3g}, the result {shared:.3g}: {bits:.1f} bits lost")


def _range(name: str, subject: Subject) -> float | None:
    """Answer the range of an input: its own, or that of the pair it comes out of."""
    maker = subject.network.producer(name)
    if maker is not None and dequantizes(maker):
        first = subject.network.producer(maker.input(0))
        return subject.ranges.get(first.input(0)) if first is not None and quantizes(first) else None
    return subject.ranges.get(name)


def _shared(node: Node, known: dict[str, float], subject: Subject) -> float | None:
    found = subject.ranges.get(node.outputs[0])
    return found if found is not None or subject.int8 else max(known.values(), default=None)


RULE = Rule(
    id="concat-ranges",
    title="Concatenation of ranges that lie far apart",
    why=(
        "One scale for the result serves the widest input; a narrow one keeps few of its levels: 16 times apart is "
        "four of seven bits. A skip connection of small values beside a decoder of large ones loses its detail."
    ),
    remedy=(
        "quantize the inputs before the concatenation, each with its own scale; do not tie them; rescale the narrow "
        "branch in its last convolution"
    ),
    sources=(TRT_QUANTIZED, "https://github.com/ultralytics/ultralytics/pull/1695"),
    levels=everywhere("warning"),
    check=check,
)
