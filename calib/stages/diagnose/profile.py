"""The error along the depth of a network: what each tensor's own step makes, and what it carries from above."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from calib.core.difference import Difference, difference
from calib.core.expose import expose
from calib.core.graph import analyse
from calib.errors import CalibError
from calib.stages.diagnose.compare import Comparison
from calib.stages.diagnose.halfcheck import range_in_half
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime, exposed
from calib.types.runner import Feeds, to_host


@dataclass(frozen=True)
class TensorError:
    """A tensor of the candidate against its counterpart.

    Attributes:
        tensor: its name in the candidate.
        reference: its counterpart, empty where it has none.
        node: the step that makes it.
        kind: operator of that step.
        depth: place along the network, from 1.
        how: how the counterpart was recognised.
        born: error that its step makes on the reference's inputs.
        total: error of the float candidate, run as a whole.
        quantized: error of the Q/DQ candidate, run as a whole.
        amax: largest magnitude of the reference's tensor.
        overflows: elements of it beyond float16.
        vanishes: elements of it that are zero in float16.
    """

    tensor: str
    reference: str
    node: str
    kind: str
    depth: int
    how: str
    born: Difference | None
    total: Difference | None
    quantized: Difference | None
    amax: float
    overflows: int
    vanishes: int


def profile(
    comparison: Comparison, candidate: OnnxTrace, quantized: onnx.ModelProto | None, feeds: Feeds, runtime: Runtime
) -> list[TensorError]:
    """Compare every recognised tensor, as the candidate makes it when run as a whole.

    Args:
        comparison: which tensor is which.
        candidate: trace of the candidate's float part.
        quantized: the Q/DQ network, or None.
        feeds: what the candidate is fed, one batch.
        runtime: runs it; arrays are compared as they come and not kept.
    """
    matches = comparison.alignment.matches
    names = [name for name in matches if name in candidate.makers]
    totals = _totals(comparison, candidate, names, feeds, runtime)
    others = {} if quantized is None else _quantized(comparison, quantized, names, feeds, runtime)
    found = []
    for name in names:
        step, match = candidate.makers[name], matches[name]
        value = comparison.alignment.reference[match.reference]
        amax = float(abs(value).max(initial=0)) if value.size else 0.0
        beyond = range_in_half(value) if value.dtype.kind == "f" else (0, 0)
        found.append(
            TensorError(
                name, match.reference, step.label, step.kind, candidate.depth[name], match.how, match.born,
                totals.get(name), others.get(name), amax if math.isfinite(amax) else math.inf, *beyond,
            )
        )  # fmt: skip
    return found


def _totals(
    comparison: Comparison, candidate: OnnxTrace, names: list[str], feeds: Feeds, runtime: Runtime
) -> Mapping[str, Difference]:
    found: dict[str, Difference] = {}
    try:
        for name, array in exposed(candidate, names, feeds, runtime):
            found[name] = _against(comparison, name, array)
    except CalibError:
        return found
    return found


def _against(comparison: Comparison, name: str, array: object) -> Difference:
    own = to_host(array)  # type: ignore[arg-type]
    wanted = comparison.alignment.wanted(name)
    return difference(own, wanted.reshape(own.shape) if own.size == wanted.size else wanted)


def _quantized(
    comparison: Comparison, model: onnx.ModelProto, names: list[str], feeds: Feeds, runtime: Runtime
) -> Mapping[str, Difference]:
    made = {item.name for item in analyse(model).activations if item.producer is not None}
    known = [name for name in names if name in made]
    if not known:
        return {}
    try:
        answer = runtime.load(expose(model, known), optimize=False).run(feeds)
    except CalibError:
        return {}
    return {name: _against(comparison, name, array) for name, array in answer.items()}
