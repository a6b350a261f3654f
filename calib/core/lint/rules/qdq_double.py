"""Values that are quantized twice."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from calib.core.lint.rule import Rule, Sighting, at, everywhere
from calib.core.lint.sources import TRT_QUANTIZED
from calib.core.lint.strip import dequantizes
from calib.core.lint.subject import Subject


def check(subject: Subject) -> Iterator[Sighting]:
    """List pairs right behind another pair with another scale, and tensors that several scales quantize."""
    scales = {item.node.index: item.scale for item in subject.quantizers}
    first: dict[str, tuple[str, float]] = {}
    for item in subject.quantizers:
        if not item.quantizes or item.constant or item.scale is None or item.scale.size != 1:
            continue
        source, scale = item.node.input(0), float(np.asarray(item.scale, np.float64).reshape(()))
        maker = subject.network.producer(source)
        before = scales.get(maker.index) if maker is not None and dequantizes(maker) else None
        if maker is not None and before is not None and before.size == 1 and float(before.reshape(())) != scale:
            said = f"scale {scale:.4g} behind {maker.label} with {float(before.reshape(())):.4g}"
            yield at(item.node, said)
        known = first.setdefault(source, (item.node.label, scale))
        if known[1] != scale:
            yield at(item.node, f"scale {scale:.4g} on {source!r}, which {known[0]} quantizes by {known[1]:.4g}")


RULE = Rule(
    id="qdq-double",
    title="Values are quantized by two scales",
    why=(
        "Rounding twice by different scales costs accuracy twice, and TensorRT must requantize, or keep the tensor "
        "twice, between layers that could share it."
    ),
    remedy="one pair per tensor, one scale, shared by all that read it",
    sources=(TRT_QUANTIZED,),
    levels=everywhere("warning"),
    check=check,
)
