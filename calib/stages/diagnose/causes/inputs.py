"""Preprocessing that is baked into the graph: channel order, mean and deviation, scale, at the first steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calib.core.difference import difference
from calib.core.weightdiff import slice_factors
from calib.stages.diagnose.case import Case, Change
from calib.stages.diagnose.causes.common import CONFIRMED, LIKELY, make_cause
from calib.types.diagnosis import Cause

CHANNELS = 4
"""A tensor of more channels is no picture any more."""
PREPARING = frozenset(
    {"Add", "Sub", "Mul", "Div", "Cast", "Transpose", "Gather", "Slice", "Split", "Concat", "Neg", "Reshape", "Pad"}
)
"""Operators that prepare a picture inside a network."""
USUAL = (255.0, 127.5, 128.0, 256.0, 127.0)
"""Factors that tell a scale of pixel values."""
ADVICE = {
    "channel-order": "feed the channel order the network was trained on, and swap it in one place only",
    "mean-std": "state mean and deviation once: in the graph or in the preprocessing, with the training's values",
    "input-scale": "divide by 255 (or not) in one place only: in the graph or in the preprocessing",
}


@dataclass(frozen=True)
class Recolouring:
    """How one picture became another: ``candidate[c] = factor[c] * reference[order[c]] + offset[c]``.

    Attributes:
        order: channel of the reference that each channel comes from.
        factors: one a channel.
        offsets: one a channel.
        residual: relative error that is left.
    """

    order: tuple[int, ...]
    factors: tuple[float, ...]
    offsets: tuple[float, ...]
    residual: float

    @property
    def kind(self) -> str:
        """``channel-order``, ``input-scale``, ``mean-std`` or empty where nothing changed."""
        if self.order != tuple(range(len(self.order))):
            return "channel-order"
        if max(abs(factor - 1) for factor in self.factors) < 1e-4 and max(map(abs, self.offsets)) < 1e-4:
            return ""
        return "input-scale" if is_usual_scale(self.factors) else "mean-std"

    @property
    def words(self) -> str:
        """The change in words."""
        if self.kind == "channel-order":
            return f"channels in the order {list(self.order)}"
        factors = ", ".join(f"{factor:.4g}" for factor in self.factors)
        offsets = ", ".join(f"{offset:.4g}" for offset in self.offsets)
        return f"values multiplied by {factors} and moved by {offsets}"


def is_usual_scale(factors: tuple[float, ...] | list[float]) -> bool:
    """Whether all channels have one factor that stands between pixel scales, such as 255 or 1/255."""
    one = float(np.mean(factors))
    if not one or max(abs(factor / one - 1) for factor in factors) > 1e-2:
        return False
    return any(abs(abs(one) * scale - 1) < 1e-2 or abs(abs(one) / scale - 1) < 1e-2 for scale in USUAL)


def recolouring(own: NDArray[np.generic], wanted: NDArray[np.generic]) -> Recolouring | None:
    """Fit how the channels of a picture ``[N, C, H, W]`` became those of another; None where that explains nothing."""
    if own.shape != wanted.shape or own.ndim != 4:
        return None
    if own.shape[1] > CHANNELS and own.shape[3] <= CHANNELS:
        own, wanted = (np.moveaxis(item, 3, 1) for item in (own, wanted))
    count = own.shape[1]
    if count > CHANNELS:
        return None
    ours, theirs = (np.moveaxis(np.asarray(x, np.float64), 1, 0).reshape(count, -1) for x in (own, wanted))
    sources = [_source(place, channel, theirs) for place, channel in enumerate(ours)]
    fits = [_fit(channel, theirs[source]) for channel, source in zip(ours, sources, strict=True)]
    residual = max(fit[2] for fit in fits)
    if residual > 2e-2 or sorted(sources) != list(range(count)):
        return None
    return Recolouring(tuple(sources), tuple(f[0] for f in fits), tuple(f[1] for f in fits), residual)


def _source(place: int, own: NDArray[np.float64], theirs: NDArray[np.float64]) -> int:
    """The channel that one comes from: its own, unless another fits clearly better."""
    left = [_fit(own, channel)[2] for channel in theirs]
    best = int(np.argmin(left))
    return place if left[place] <= 1e-4 + 1.01 * left[best] else best


def _fit(own: NDArray[np.float64], wanted: NDArray[np.float64]) -> tuple[float, float, float]:
    """Factor, offset and relative residual of the line from one channel to another."""
    mean, other = wanted.mean(), own.mean()
    centred, moved = wanted - mean, own - other
    norm, spread = float(centred @ centred), float(moved @ moved)
    if norm == 0 or spread == 0:
        return 1.0, float(other - mean), 0.0 if norm == spread else 1.0
    factor = float(centred @ moved) / norm
    left = moved - factor * centred
    return factor, float(other - factor * mean), float(np.sqrt(left @ left / spread))


def detect(case: Case) -> Iterator[Cause]:
    """Find steps at the network's input that feed the first layer another picture."""
    if not case.departure.steps and case.departure.tensor in case.candidate.inputs:
        yield _fed(case)
        return
    if not set(case.departure.frontier) <= _near_input(case):
        return
    own = case.own
    kinds = {step.kind for step in (*case.departure.steps, *case.departure.reference_steps)}
    if own is not None and own.ndim == 4 and kinds <= PREPARING:
        found = recolouring(own, case.wanted.reshape(own.shape) if own.size == case.wanted.size else case.wanted)
        if found is not None and found.kind:
            yield _baked(case, found)
    for change in case.changes:
        if change.what == "weight" and change.kind == "Conv" and change.weights is not None:
            yield from _first_layer(case, change)
        elif change.what in {"dropped", "inserted"}:
            yield from _whole_chain(case)


def _fed(case: Case) -> Cause:
    """The candidate is fed another picture than the reference."""
    own = case.own
    found = None if own is None else recolouring(own, case.wanted)
    kind = found.kind if found is not None and found.kind else "input-values"
    words = found.words if found is not None and found.kind else "the pictures are resized or cut otherwise"
    return make_cause(
        case, None, kind, f"{case.departure.tensor}: the candidate is fed another picture, {words}",
        stage="preprocessing", remedy=ADVICE.get(kind, "prepare pictures as the reference's training did"),
        confidence=CONFIRMED,
        evidence=(f"relative error of the input {case.departure.born.relative:.2g}; fed the reference's picture, the "
                  "candidate's first layers answer as the reference's do",),
    )  # fmt: skip


def _near_input(case: Case) -> set[str]:
    """The network's inputs, and pictures made of them by elementwise steps and transpositions."""
    near = set(case.candidate.inputs)
    for step in case.candidate.steps:
        value = case.alignment.own.get(step.outputs[0])
        few = value is not None and value.ndim == 4 and min(value.shape[1], value.shape[3]) <= CHANNELS
        if few and step.data and set(step.data) <= near:
            near.update(step.outputs)
    return near


def _baked(case: Case, found: Recolouring) -> Cause:
    step = case.departure.steps[-1] if case.departure.steps else None
    other = case.departure.reference_steps[-1] if case.departure.reference_steps else None
    name = step.label if step else case.departure.tensor
    return make_cause(
        case, step, found.kind, f"{name}: the first layer gets another picture, {found.words}", other=other,
        stage="preprocessing", remedy=ADVICE[found.kind], confidence=0.985,
        evidence=(f"undoing this leaves a relative error of {found.residual:.1g} ({case.departure.born.relative:.2g} "
                  "before)",),
        details={"order": found.order, "factors": found.factors, "offsets": found.offsets},
    )  # fmt: skip


def _first_layer(case: Case, change: Change) -> Iterator[Cause]:
    """Weights of the first layer that were changed as if its input was."""
    step, other, weights = change.step, change.other, change.weights
    if step is None or other is None or weights is None or change.name != "W":
        return
    before, after = (np.asarray(item.weights["W"], np.float64) for item in (other, step))
    if weights.kind == "permuted" and weights.details.get("axis") == 1:
        title = f"{step.label}: the first layer takes its input channels in the order {weights.details['order']}"
        yield _of_layer(case, change, "channel-order", title)
        return
    factors = slice_factors(before, after, 1) if before.shape == after.shape else None
    if factors is None:
        return
    if is_usual_scale(factors):
        yield _of_layer(case, change, "input-scale", f"{step.label}: the first layer expects pixels on another scale")
    elif max(factors) / min(factors) > 1.001 or _moved_bias(case, change):
        words = ", ".join(f"{factor:.4g}" for factor in factors)
        title = f"{step.label}: mean or deviation folded into the first layer is another (factors {words})"
        yield _of_layer(case, change, "mean-std", title)


def _moved_bias(case: Case, change: Change) -> bool:
    return any(item.name == "B" and item.step is change.step for item in case.changes if item.what == "weight")


def _of_layer(case: Case, change: Change, kind: str, title: str) -> Cause:
    words = change.weights.words if change.weights else ""
    return make_cause(
        case, change.step, kind, title, other=change.other, stage="preprocessing", remedy=ADVICE[kind],
        evidence=(f"weights: {words}", f"relative error {case.departure.born.relative:.2g}"), confidence=0.985,
    )  # fmt: skip


def _whole_chain(case: Case) -> Iterator[Cause]:
    """A step of the input chain is missing or double, and the layer behind it departs: compare what the layer reads."""
    last, theirs = case.departure.steps[-1:], case.departure.reference_steps[-1:]
    if not last or not theirs or last[0].kind != theirs[0].kind or not last[0].data or not theirs[0].data:
        return
    own, wanted = case.alignment.value(last[0].data[0]), case.reference.values.get(theirs[0].data[0])
    if own is None or wanted is None or difference(own, wanted).relative == 0:
        return
    found = recolouring(own, wanted)
    if found is None or not found.kind:
        return
    dropped = next((c.other for c in case.changes if c.what == "dropped"), None)
    inserted = next((c.step for c in case.changes if c.what == "inserted"), None)
    yield make_cause(
        case, inserted, found.kind, f"the first layer {last[0].label} gets another picture, {found.words}",
        other=dropped or theirs[0], stage="preprocessing", remedy=ADVICE[found.kind],
        evidence=(f"undoing this leaves a relative error of {found.residual:.1g}",),
        confidence=CONFIRMED if case.node_is_sound(last[0], theirs[0]) else LIKELY,
    )  # fmt: skip
