"""Where the error of quantization comes from when no pair is at fault: each pair alone on, in the float network."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.stages.diagnose.pairedits import without_pairs
from calib.stages.diagnose.pairfaults import Score
from calib.stages.diagnose.quantizers import LEVELS, Meter
from calib.types.diagnosis import Cause

POOR_DB = 20.0
"""SQNR of the output below which it is worth knowing where its error comes from: a hundredth of its power."""
MOST = 12
"""Pairs tried: those with the largest error on their own tensor."""
NAMED = 3
SHARE = 0.5
"""Share of the error that the named pairs must make up together."""
UNEVEN = 4.0
"""Largest magnitude of a tensor over that of its middle channel from which one scale is said to be too few."""
REMEDY = (
    "this is the network's nature, not a wrong range: let a calibrator clip the tensor (entropy, mse, percentile), "
    "keep the layers that read it in float (calib build --keep-float), or train with quantization (calib qat)"
)


@dataclass(frozen=True)
class _Alone:
    meter: Meter
    sqnr_db: float

    @property
    def noise(self) -> float:
        """Error of the output by this pair alone, as a share of the output's power."""
        return 10 ** (-self.sqnr_db / 10) if math.isfinite(self.sqnr_db) else 0.0


def costliest(
    model: onnx.ModelProto, meters: Mapping[str, Meter], weights: Mapping[str, NDArray[Any]], score: Score
) -> list[Cause]:
    """Name the pairs that most of the output's error comes from, as remarks; none where it is small, or spread.

    Args:
        model: the Q/DQ network.
        meters: what each pair does to its tensor, by the output of its DequantizeLinear.
        weights: float weights by tensor.
        score: judges a network.
    """
    whole = score(model)
    if not whole < POOR_DB:
        return []
    seen = ((output, meter) for output, meter in meters.items() if meter.quantizer.constant is None and meter.elements)
    active = sorted((meter.sqnr_db, output) for output, meter in seen)[:MOST]
    tried = [_Alone(meters[output], score(_alone(model, meters, weights, output))) for _, output in active]
    tried.sort(key=lambda item: -item.noise)
    total = sum(item.noise for item in tried)
    named = tried[:NAMED]
    if not total or sum(item.noise for item in named) < SHARE * total:
        return []
    return [_remark(item, whole, item.noise / total) for item in named]


def _alone(
    model: onnx.ModelProto, meters: Mapping[str, Meter], weights: Mapping[str, NDArray[Any]], kept: str
) -> onnx.ModelProto:
    """The network with one pair, its weights float."""
    instead: dict[str, NDArray[Any] | None] = {}
    for output, meter in meters.items():
        item = meter.quantizer
        if output != kept:
            instead[output] = None if item.constant is None else weights.get(item.tensor, item.constant)
    return without_pairs(model, instead)


def _remark(item: _Alone, whole: float, share: float) -> Cause:
    quantizer = item.meter.quantizer
    readers = ", ".join(quantizer.readers[:2]) or "the output"
    uneven = _unevenness(item.meter)
    evidence = [
        f"with this pair alone the output's SQNR is {item.sqnr_db:.1f} dB, with all of them {whole:.1f} dB; "
        f"{share:.0%} of the error of the pairs tried",
        f"SQNR of the tensor itself {item.meter.sqnr_db:.1f} dB, {item.meter.clipped_share:.2%} clipped",
    ]
    title = f"{quantizer.tensor}, read by {readers}: much of the error of INT8 comes from here"
    if uneven is not None:
        title += ", one scale for channels of unlike range"
        evidence.insert(0, uneven)
    return Cause(
        stage="quantization", kind="activation-uneven" if uneven else "activation-costly", title=title,
        node=next(iter(quantizer.readers), ""), tensor=quantizer.tensor, evidence=tuple(evidence), remedy=REMEDY,
        confidence=0.9, impact=share, severity="remark",
        details={"alone_db": item.sqnr_db, "readers": quantizer.readers},
    )  # fmt: skip


def _unevenness(meter: Meter) -> str | None:
    channels = meter.channels
    if channels is None or channels.size < 2 or not meter.amax:
        return None
    middle = float(np.median(channels))
    if middle <= 0 or meter.amax < UNEVEN * middle:
        return None
    step = float(meter.quantizer.scale.max())
    levels = f"{middle / step:.0f} of {LEVELS:.0f} levels"
    return f"one channel reaches {meter.amax:.3g}, the middle one {middle:.3g}: it has {levels}"


def words_of(remarks: Sequence[Cause]) -> str:
    """Say it in half a sentence, or nothing."""
    tensors = [item.tensor for item in remarks if item.kind in {"activation-uneven", "activation-costly"}]
    if not tensors:
        return ""
    uneven = any(item.kind == "activation-uneven" for item in remarks)
    return f"most of the error comes from {', '.join(tensors)}" + (
        ", where one scale serves channels of unlike range" if uneven else ""
    )
