"""What is wrong with Q/DQ pairs, each suspicion tried: the pair is mended, and the output says whether it mattered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.stages.diagnose.pairedits import replaced_scale, without_pairs
from calib.stages.diagnose.quantizer import Quantizer
from calib.stages.diagnose.quantizers import LEVELS, Meter, Places
from calib.types.diagnosis import Cause

SUSPICIOUS_DB = 8.0
"""Error of a pair beyond what eight bits must cost, from which it is looked at."""
GAIN_DB = 0.3
"""Improvement of the output's SQNR from which a mended pair was a fault."""
TRACE_DB = 0.03
"""Improvement that shows a pair to be harmful at all."""
ODD_DB = 10.5
"""Error of a pair from which it is at fault even where the rest of the network hides it, if the other pairs are sound:
a range three and a half times too wide, which no calibrator makes."""
SOUND_DB = 3.0
ODD_WEIGHTS_DB = 8.0
"""Error of weights' scales from which they are at fault even where the rest hides it, if most others fit: their ranges,
unlike those of activations, are known."""
NARROW_DB, CUT_DB, FEW_SHARE = 1.6, 3.5, 0.1
"""A range counts as clipping from a sixth below what is seen; one of few that do is suspected from a third on."""
BLIND_DB, CERTAIN = 3.0, frozenset({"weight-range", "zero-point"})
"""Below this SQNR an output says nothing of a pair; what is wrong whatever the images are is named all the same."""
DEAD_DB = 180.0
"""Width of a range from which the tensor is as good as zero, and the range a floor."""
DEAD = 1e-12
"""Share of the largest channel's power from which a channel of weights counts: below, scales end at their floor."""
MOST = 12
"""Pairs tried at most."""
CHANNEL_RATIO = 8.0
"""Ratio of the channels' largest magnitudes from which one scale is too few."""
POOR_DB = 3.0
"""Error of weights beyond that of scales per channel, from which their scales are looked at."""
PER_CHANNEL = "quantize weights per output channel (opset 13 or later)"
Score = Callable[[onnx.ModelProto], float]
"""SQNR in decibels of a network's output against the reference's, on a few images."""


@dataclass(frozen=True)
class Suspicion:
    """A pair that may be at fault, and the network with it mended."""

    kind: str
    quantizer: Quantizer
    title: str
    evidence: tuple[str, ...]
    remedy: str
    mended: Callable[[], onnx.ModelProto]
    weight: float
    structural: bool = False


def find_faults(
    model: onnx.ModelProto,
    meters: Mapping[str, Meter],
    places: Places,
    weights: Mapping[str, NDArray[Any]],
    score: Score,
) -> list[Cause]:
    """Try every suspicious pair.

    Args:
        model: the Q/DQ network.
        meters: what each pair does to its tensor.
        places: pairs at logits and gates.
        weights: float weights by tensor.
        score: judges a network.

    Returns:
        causes, the one that costs most first.
    """
    base = score(model)
    suspicions = [
        *_mismatches(model, meters),
        *_ranges(model, meters),
        *_weights(model, meters, weights),
        *_places(model, meters, places),
    ]
    suspicions.sort(key=lambda item: -item.weight)
    causes = [_tried(item, base, score) for item in suspicions[:MOST]]
    kept = [cause for cause in causes if cause is not None]
    return sorted(kept, key=lambda cause: -(cause.impact or 0.0))


def _tried(item: Suspicion, base: float, score: Score) -> Cause | None:
    after = score(item.mended())
    gain = _gain(base, after)
    blind = base < BLIND_DB and item.structural and item.kind in CERTAIN
    if gain < (TRACE_DB if item.structural else GAIN_DB) and not blind:
        return None
    shown = f"mended, the output's SQNR goes from {base:.1f} to {after:.1f} dB"
    shown += ": too far off to judge by" if blind and gain < GAIN_DB else ""
    return Cause(
        stage="quantization", kind=item.kind, title=item.title, node=item.quantizer.node, tensor=item.quantizer.tensor,
        evidence=(*item.evidence, shown), remedy=item.remedy, confidence=0.95 if gain >= GAIN_DB else 0.6,
        impact=max(0.0, 1 - 10 ** (-gain / 10)) if math.isfinite(gain) else 1.0,
        details={"gain_db": gain, "readers": item.quantizer.readers},
    )  # fmt: skip


def _gain(base: float, after: float) -> float:
    """Decibels that a mend gains; infinite where it makes a number of none, or the answer equal."""
    if math.isfinite(base) and math.isfinite(after):
        return after - base
    lost = [math.isnan(item) or item == -math.inf for item in (base, after)]
    return math.inf if (lost[0] and not lost[1]) or after > base else 0.0


def _mismatches(model: onnx.ModelProto, meters: Mapping[str, Meter]) -> Iterator[Suspicion]:
    """Pairs whose two halves do not undo each other: everything behind is scaled, or moved."""
    for output, meter in meters.items():
        item = meter.quantizer
        if item.into is None:
            continue
        into, zero = item.into
        ratios = np.broadcast_to(item.scale, np.broadcast_shapes(item.scale.shape, into.shape)) / into
        evidence = (
            f"what it makes is {ratios.min():.4g} to {ratios.max():.4g} times what it reads; zero points "
            f"{zero.flat[0]:g} and {item.zero.flat[0]:g}",
        )
        yield Suspicion(
            "scale-mismatch", item, f"{item.tensor}: QuantizeLinear and DequantizeLinear have different scales or zero "
            "points", evidence, "give both halves of the pair one scale and zero point",
            lambda output=output, into=into, zero=zero: replaced_scale(model, output, into, int(zero.flat[0])),  # type: ignore[misc]
            math.inf, structural=True,
        )  # fmt: skip


def _ranges(model: onnx.ModelProto, meters: Mapping[str, Meter]) -> Iterator[Suspicion]:
    """Activations whose range clips too much, is too coarse, or has a zero point that moves it away."""
    active = [meter for meter in meters.values() if meter.quantizer.constant is None and meter.elements]
    alone = bool(active) and float(np.median([meter.excess_db for meter in active])) < SOUND_DB
    narrow = sum(_width_db(meter) < -NARROW_DB for meter in active)
    lonely = narrow <= max(1, FEW_SHARE * len(active))
    for output, meter in meters.items():
        item = meter.quantizer
        if item.constant is not None or not meter.elements or item.into is not None:
            continue
        odd = alone and meter.excess_db > ODD_DB
        if not (np.isfinite(item.scale).all() and (item.scale > 0).all()):
            yield _range(model, output, meter, "bad-scale", f"the scale is {item.scale.min():g}", math.inf)
        elif _moved_away(meter):
            words = f"zero point {item.zero.flat[0]:g} moves the range to {_limits(meter)}"
            yield replace(_range(model, output, meter, "zero-point", words, meter.excess_db), structural=odd)
        elif (suspect := _suspect(meter, lonely=lonely)) is not None:
            kind = "range-clips" if _width_db(meter) < -0.5 else "range-coarse"
            words = f"the range is {_limits(meter)}"
            yield replace(_range(model, output, meter, kind, words, suspect), structural=odd)


def _suspect(meter: Meter, *, lonely: bool) -> float | None:
    """How much there is to say against a range, in decibels, or None.

    A calibrator clips many tensors and weighs what that costs; where next to none is clipped, one that is cut by a
    third or more is no calibrator's choice.
    """
    width = _width_db(meter)
    found = max(meter.excess_db, width)
    if width > DEAD_DB:
        return None
    if found > SUSPICIOUS_DB:
        return found
    return max(found, -width) if lonely and width < -CUT_DB else None


def _range(model: onnx.ModelProto, output: str, meter: Meter, kind: str, words: str, weight: float) -> Suspicion:
    item = meter.quantizer
    evidence = (
        f"{words}, the tensor runs from {meter.low:.4g} to {meter.high:.4g}",
        f"{meter.clipped_share:.2%} of the elements are clipped, {min(meter.levels, item.high - item.low):.0f} "
        f"levels are used; SQNR of this pair alone {meter.sqnr_db:.1f} dB",
    )
    verb = {
        "range-clips": "its range clips too much",
        "range-coarse": "its range is too coarse",
        "zero-point": "its zero point is wrong",
        "bad-scale": "its scale is no scale",
    }[kind]
    scale = np.full(item.scale.shape, max(meter.amax, 1e-12) / LEVELS)
    zero = 0 if item.low < 0 else 128
    return Suspicion(
        kind, item, f"{item.tensor}: {verb}", evidence,
        "calibrate this tensor again on representative images; TensorRT wants zero point 0",
        lambda: replaced_scale(model, output, scale, zero), weight,
    )  # fmt: skip


def _width_db(meter: Meter) -> float:
    """How much wider than needed a range is. A tensor that is mostly zero hides it: zeros are exact on any grid."""
    wide = LEVELS * float(meter.quantizer.scale.max())
    known = 0 < wide < math.inf and 0 < meter.amax < math.inf and meter.quantizer.low < 0
    return 20 * math.log10(wide / meter.amax) if known else 0.0


def _limits(meter: Meter) -> str:
    item = meter.quantizer
    low, high = ((limit - item.zero.flat[0]) * item.scale.flat[0] for limit in (item.low, item.high))
    return f"{low:.4g} to {high:.4g}"


def _moved_away(meter: Meter) -> bool:
    """Whether another zero point of the same scale would hold what this one clips."""
    item = meter.quantizer
    natural = 0 if item.low < 0 else (128 if meter.low < 0 else 0)
    if item.scale.size > 1 or item.zero.flat[0] == natural or meter.excess_db < 1.0:
        return False
    scale, zero = float(item.scale.flat[0]), float(item.zero.flat[0])
    low, high = (item.low - zero) * scale, (item.high - zero) * scale
    beyond = max(meter.high - high, low - meter.low)
    return beyond > scale


def _weights(
    model: onnx.ModelProto, meters: Mapping[str, Meter], weights: Mapping[str, NDArray[Any]]
) -> Iterator[Suspicion]:
    """Weights with one scale where channels differ, or with scales that clip or waste levels."""
    found = [fit for output, meter in meters.items() if (fit := _fit(output, meter.quantizer, weights)) is not None]
    single = [fit for fit in found if fit.kind == "weights-per-tensor"]
    unfit = [fit for fit in found if fit not in single]
    weighed = sum(meter.quantizer.constant is not None for meter in meters.values())
    yield from (_weight(model, fit, odd=len(unfit) < weighed / 2) for fit in unfit)
    if len(single) > max(2, len(found) / 2):
        yield _all_single(model, single)
    else:
        yield from (_weight(model, fit, odd=True) for fit in single)


@dataclass(frozen=True, eq=False)
class _Fit:
    """How well the scales of some weights suit them."""

    output: str
    quantizer: Quantizer
    kind: str
    excess: float
    ratio: float
    reach: tuple[float, float]
    mended: NDArray[np.float32]


def _fit(output: str, item: Quantizer, weights: Mapping[str, NDArray[Any]]) -> _Fit | None:
    value = weights.get(item.tensor, item.constant)
    if item.constant is None or value is None or value.ndim < 2 or item.high > 255 or item.into is not None:
        return None
    axis = item.channel_axis % value.ndim
    # Which axis of a transposed convolution TensorRT takes is contradictory: there one scale is the safe choice.
    safe = "ConvTranspose" in item.reader_kinds and item.scale.size == 1
    best = _per_channel(value, None if safe else axis)
    own, least = _channel_error(item.fake(value), value, axis), _channel_error(best, value, axis)
    excess = 10 * math.log10(own / least) if own > 0 and least > 0 else 0.0
    amax = np.abs(np.moveaxis(value, axis, 0).reshape(value.shape[axis], -1)).max(axis=1)
    live = amax[amax > 0]
    ratio = float(np.float64(live.max()) / np.float64(live.min())) if live.size else 1.0
    single = item.scale.size == 1 and value.shape[axis] > 1
    fits = single and not safe and 0.5 < float(item.scale.flat[0]) * LEVELS / max(float(amax.max()), 1e-30) < 2.0
    kind = "weights-per-tensor" if fits else "weight-range"
    reach = (float(live.min()) if live.size else 0.0, float(amax.max(initial=0.0)))
    found = _Fit(output, item, kind, excess, ratio, reach, np.asarray(best, np.float32))
    return found if fits or excess >= POOR_DB else None


def _weight(model: onnx.ModelProto, fit: _Fit, *, odd: bool) -> Suspicion:
    item = fit.quantizer
    reader = ", ".join(item.readers[:2]) or item.tensor
    single = fit.kind == "weights-per-tensor"
    title = (
        f"{reader}: one scale for weights whose channels differ {fit.ratio:.0f} times"
        if single
        else f"{reader}: the weights' scales do not fit the weights"
    )
    poor = fit.excess >= (POOR_DB if single else ODD_WEIGHTS_DB)
    structural = odd and (poor or (single and fit.ratio > CHANNEL_RATIO))
    return Suspicion(
        fit.kind, item, title, (_channel_words(fit),), PER_CHANNEL,
        lambda: without_pairs(model, {fit.output: fit.mended}), fit.excess, structural=structural,
    )  # fmt: skip


def _all_single(model: onnx.ModelProto, fits: Sequence[_Fit]) -> Suspicion:
    """One scale a weight throughout: all are mended at once, for alone each is hidden by the others."""
    worst = max(fits, key=lambda fit: fit.excess)
    reader = ", ".join(worst.quantizer.readers[:2]) or worst.quantizer.tensor
    title = (
        f"{len(fits)} weights have one scale each though their channels differ, {reader} most ({worst.ratio:.0f} times)"
    )
    every = {fit.output: fit.mended for fit in fits}
    return Suspicion(
        "weights-per-tensor", worst.quantizer, title, (_channel_words(worst),), PER_CHANNEL,
        lambda: without_pairs(model, every), worst.excess,
    )  # fmt: skip


def _channel_words(fit: _Fit) -> str:
    return (
        f"channels reach {fit.reach[0]:.3g} to {fit.reach[1]:.3g}; error {fit.excess:.1f} dB above that of scales per "
        "channel"
    )


def _per_channel(value: NDArray[Any], axis: int | None) -> NDArray[np.float64]:
    """Weights on the grid of their largest magnitudes: one a channel, or one in all."""
    wide = np.asarray(value, np.float64)
    amax = np.abs(wide).max(axis=tuple(other for other in range(wide.ndim) if other != axis), keepdims=True)
    scale = np.where(amax > 0, amax, 1.0) / LEVELS
    return np.asarray(np.clip(np.rint(wide / scale), -128, 127) * scale)


def _channel_error(fake: NDArray[np.float64], value: NDArray[Any], axis: int) -> float:
    """Mean over the channels of their relative squared error, each at most 1: every channel counts alike."""
    ours, theirs = (
        np.moveaxis(np.asarray(x, np.float64), axis, 0).reshape(value.shape[axis], -1) for x in (fake, value)
    )
    power = (theirs**2).sum(axis=1)
    live = power > DEAD * power.max(initial=0.0)
    if not live.any():
        return 0.0
    return float(np.mean(np.minimum(((ours - theirs) ** 2).sum(axis=1)[live] / power[live], 1.0)))


def _places(model: onnx.ModelProto, meters: Mapping[str, Meter], places: Places) -> Iterator[Suspicion]:
    """Pairs at the logits layer and in gates."""
    for kind, outputs, what in (
        ("logits-quantized", places.logits, "the logits are quantized"),
        ("gate-quantized", places.gates, "a squeeze-and-excitation gate is quantized"),
    ):
        for output in sorted(outputs):
            item = meters[output].quantizer
            yield Suspicion(
                kind, item, f"{item.tensor}: {what}",
                (f"the pair is read by {', '.join(item.readers[:3]) or 'the output'}; SQNR of this pair alone "
                 f"{meters[output].sqnr_db:.1f} dB",),
                "leave the last layer and the gates in float: eight bits cost classes there and save no time",
                lambda output=output: without_pairs(model, {output: None}), 1.0, structural=True,  # type: ignore[misc]
            )  # fmt: skip
