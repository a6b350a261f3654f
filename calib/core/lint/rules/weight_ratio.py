"""Weights whose channels differ widely in range."""

from __future__ import annotations

from collections.abc import Iterator

from calib.core.lint.norms import ChannelRanges, channel_ranges
from calib.core.lint.rule import Levels, Rule, Sighting, at, everywhere
from calib.core.lint.sources import DFQ, INTEGER_WHITEPAPER, issue
from calib.core.lint.subject import Subject

LIMIT = 100.0
"""A channel whose range is a hundredth of the largest has one step of INT8 left."""


def check(subject: Subject) -> Iterator[Sighting]:
    """List layers whose channel ranges differ by more than :data:`LIMIT`."""
    for item in channel_ranges(subject):
        if item.ratio > LIMIT:
            depthwise = item.node.op_type == "Conv" and item.node.attributes.get("group", 1) == item.amax.size
            kind = ("depthwise, " if depthwise else "") + ("BatchNormalization folded, " if item.folded else "")
            levels = _levels(item, subject)
            yield at(item.node, f"{kind}channel ranges {item.ratio:.3g} to 1", levels)


def _levels(item: ChannelRanges, subject: Subject) -> Levels | None:
    """A single scale is a fact in a Q/DQ network, and the default for transposed convolutions."""
    quantizer = subject.quantized_constant(item.tensor)
    if quantizer is not None:
        return everywhere("note" if quantizer.per_channel else "warning")
    return everywhere("warning") if item.node.op_type == "ConvTranspose" else None


RULE = Rule(
    id="weight-ratio",
    title="Weight whose channels differ in range by more than 100",
    why=(
        "With one scale for the tensor the small channels round to one or two levels: depthwise layers lose most. One "
        "scale per channel keeps them; activations behind them still share one range."
    ),
    remedy="quantize this weight per channel (calib's default), or equalize: `--calibrator per-channel:equalize=true`",
    sources=(DFQ, INTEGER_WHITEPAPER, issue("quic/aimet", 2474), issue("Xilinx/brevitas", 1341)),
    levels=everywhere("note"),
    check=check,
)
