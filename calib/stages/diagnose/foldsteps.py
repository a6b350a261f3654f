"""Batch norms that one side has as steps and the other in the weights of its layers: made alike before comparing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from calib.core.normfold import EPSILON, affine_of, scale_outputs
from calib.stages.diagnose.trace import Step

FOLDING = frozenset({"Conv", "ConvTranspose", "Gemm"})
"""Operators that a batch norm behind them is folded into."""


def fold_norms(ours: Sequence[Step], theirs: Sequence[Step]) -> tuple[list[Step], list[Step]]:
    """Fold batch norms into the layers before them where only one side has any."""
    norms = [any(step.kind == "BatchNormalization" for step in side) for side in (ours, theirs)]
    if norms[0] == norms[1]:
        return list(ours), list(theirs)
    return (_folded(ours), list(theirs)) if norms[0] else (list(ours), _folded(theirs))


def _folded(steps: Sequence[Step]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        before = found[-1] if found else None
        joined = None if before is None else _joined(before, step)
        if joined is None:
            found.append(step)
        else:
            found[-1] = joined
    return found


def _joined(layer: Step, norm: Step) -> Step | None:
    """A layer with the batch norm behind it, as one step."""
    kernel, bias = ("B", "C") if layer.kind == "Gemm" else ("W", "B")
    if norm.kind != "BatchNormalization" or layer.kind not in FOLDING or kernel not in layer.weights:
        return None
    names = ("scale", "B", "input_mean", "input_var")
    if norm.data[:1] != layer.outputs[:1] or not all(name in norm.weights for name in names):
        return None
    epsilon, group, transposed = (_number(*pair) for pair in ((norm, "epsilon"), (layer, "group"), (layer, "transB")))
    scale, shift, mean, variance = (norm.weights[name] for name in names)
    affine = affine_of(scale, shift, mean, variance, EPSILON if epsilon is None else epsilon)
    weight = None if affine is None else scale_outputs(
        layer.kind, layer.weights[kernel], affine.factor, group=int(group or 1), transposed=bool(transposed)
    )  # fmt: skip
    before = np.asarray(layer.weights.get(bias, 0.0), np.float64).reshape(-1)
    if affine is None or weight is None or before.size not in {1, affine.factor.size}:
        return None
    beta = _number(layer, "beta")
    before = before * (1.0 if beta is None else beta)
    parameters = {name: 1.0 if name == "beta" else value for name, value in layer.parameters.items()}
    total = before * affine.factor + affine.shift
    weights = {kernel: weight.astype(np.float32), bias: total.astype(np.float32)}
    return replace(layer, outputs=norm.outputs, weights=weights, parameters=parameters)


def _number(step: Step, name: str) -> float | None:
    value = step.parameters.get(name)
    return float(value) if isinstance(value, int | float) else None
