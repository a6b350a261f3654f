"""Examine a candidate against a reference: export faults first, then Q/DQ pairs, then what float16 would do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from calib.core.difference import Accumulator
from calib.core.expose import expose
from calib.core.graph import analyse
from calib.errors import CalibError
from calib.stages.diagnose.compare import Comparison, compare
from calib.stages.diagnose.costliest import costliest
from calib.stages.diagnose.halfcheck import HalfCheck, check_half, half_cause, is_half
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime, trace_onnx
from calib.stages.diagnose.pairfaults import Score, find_faults
from calib.stages.diagnose.quantizers import Meter, measure, sensitive_places
from calib.stages.diagnose.snap import snap_weights
from calib.stages.diagnose.trace import Trace
from calib.stages.diagnose.twin import Twin, has_pairs, make_twin
from calib.types.diagnosis import STAGES, Cause
from calib.types.runner import Feeds, to_host

SATURATING = frozenset({"ArgMax", "HardSigmoid", "LogSoftmax", "Sigmoid", "Softmax"})
ARRANGING = frozenset({"Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
CLAMPING = frozenset({"activation", "operator-inserted", "operator-replaced", "operator-doubled"})


@dataclass(frozen=True)
class Examination:
    """What was found in the graphs.

    Attributes:
        comparison: the candidate's float part against the reference.
        candidate: its trace.
        twin: the candidate taken apart, None where it holds no Q/DQ.
        meters: every pair on its own tensor, by the output of its DequantizeLinear.
        half: what float16 does to the float part; None where the candidate is in float16 itself.
        causes: faults, the first in ladder and network order first.
        remarks: what is worth knowing and no fault.
    """

    comparison: Comparison
    candidate: OnnxTrace
    twin: Twin | None = None
    meters: Mapping[str, Meter] = field(default_factory=dict)
    half: HalfCheck | None = None
    causes: tuple[Cause, ...] = ()
    remarks: tuple[Cause, ...] = ()


def examine(
    reference: Trace,
    candidate: onnx.ModelProto,
    images: Sequence[Feeds],
    runtime: Runtime,
    output: str | None = None,
    place: str = "candidate",
    others: Sequence[Callable[[], tuple[Trace, Feeds]]] = (),
) -> Examination:
    """Examine a candidate.

    Args:
        reference: trace of the reference on the first image, with values.
        candidate: float, float16 or Q/DQ network.
        images: what the candidate is fed, one batch each; the first is the reference's image.
        runtime: runs networks and single steps.
        output: which output counts; default the first.
        place: what to call the candidate.
        others: traces of the reference on other images, with what the candidate is fed of them; made only where the
            graphs differ without effect on the first image.

    Raises:
        ModelError: the candidate is no graph.
    """
    twin = make_twin(candidate) if has_pairs(candidate) else None
    model = candidate if twin is None else twin.model
    trace = trace_onnx(model, images[0], runtime, place, values=False)
    weights: dict[str, NDArray[Any]] = {}
    if twin is not None:
        weights = snap_weights(reference, trace, twin.quantizers)
        twin = replace(twin, model=_with_weights(twin.model, weights))
    comparison = compare(reference, trace, runtime)
    clamps = frozenset[str]() if twin is None else twin.clamps
    causes = _without_clamps(comparison.causes, clamps)
    comparison = replace(comparison, remarks=_without_clamps(comparison.remarks, clamps))
    if not causes and comparison.remarks:
        causes = _elsewhere(model, others, runtime, place, twin)
    found = Examination(comparison, trace, twin, causes=causes, remarks=() if causes else comparison.remarks)
    name = output or candidate.graph.output[0].name
    if twin is not None:
        found = _with_pairs(found, candidate, twin, weights, images, runtime, name)
    if not is_half(candidate):
        found = _with_half(found, model if twin is None else twin.model, reference, images[0], runtime, name)
    return replace(found, causes=tuple(sorted(found.causes, key=lambda cause: STAGES.index(cause.stage))))


def float_part(reference: Trace, candidate: onnx.ModelProto, feeds: Feeds, runtime: Runtime) -> onnx.ModelProto:
    """The float network inside a Q/DQ one, with the reference's weights where the stored integers are theirs.

    Args:
        reference: trace of the reference.
        candidate: the Q/DQ network.
        feeds: what the candidate is fed, one batch.
        runtime: runs it.
    """
    twin = make_twin(candidate)
    if all(item.exact for item in twin.quantizers if item.constant is not None):
        return twin.model
    trace = trace_onnx(twin.model, feeds, runtime, "candidate", values=False)
    return _with_weights(twin.model, snap_weights(reference, trace, twin.quantizers))


def _without_clamps(causes: Sequence[Cause], clamps: frozenset[str]) -> tuple[Cause, ...]:
    """Causes that are none of a pair's own clamping: where that begins or ends is the quantization's matter."""
    return tuple(cause for cause in causes if cause.node not in clamps or cause.kind not in CLAMPING)


def _elsewhere(
    model: onnx.ModelProto,
    others: Sequence[Callable[[], tuple[Trace, Feeds]]],
    runtime: Runtime,
    place: str,
    twin: Twin | None,
) -> tuple[Cause, ...]:
    """What departs on another image where the first shows nothing."""
    clamps = frozenset[str]() if twin is None else twin.clamps
    for make in others:
        reference, feeds = make()
        trace = trace_onnx(model, feeds, runtime, place, values=False)
        if twin is not None:
            snap_weights(reference, trace, twin.quantizers)
        found = _without_clamps(compare(reference, trace, runtime).causes, clamps)
        if found:
            return found
    return ()


def _with_weights(model: onnx.ModelProto, weights: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for tensor in copy.graph.initializer:
        if tensor.name in weights:
            tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(weights[tensor.name]), tensor.name))
    return copy


def _with_pairs(
    found: Examination,
    candidate: onnx.ModelProto,
    twin: Twin,
    weights: Mapping[str, NDArray[Any]],
    images: Sequence[Feeds],
    runtime: Runtime,
    output: str,
) -> Examination:
    try:
        meters = measure(twin.model, twin.quantizers, images, runtime, weights)
        score = make_score(twin.model, candidate, images[:2], runtime, output)
        places = sensitive_places(analyse(twin.model), twin.quantizers)
        causes = find_faults(candidate, meters, places, weights, score)
        remarks = [] if causes or found.causes else costliest(candidate, meters, weights, score)
    except CalibError:  # the network does not run as a whole; the departures say why
        return found
    return replace(found, meters=meters, causes=(*found.causes, *causes), remarks=(*found.remarks, *remarks))


def make_score(
    model: onnx.ModelProto, candidate: onnx.ModelProto, images: Sequence[Feeds], runtime: Runtime, output: str
) -> Score:
    """Judge networks by the SQNR of their scores: of what a last Sigmoid, Softmax or ArgMax reads.

    Args:
        model: the float network whose scores are wanted.
        candidate: the network whose changes are judged; what it has behind its scores is judged with them.
        images: one batch each.
        runtime: runs them, without optimizations.
        output: which output counts.
    """
    passed = len(_saturating(candidate, output))

    def answers(judged: onnx.ModelProto) -> Iterator[NDArray[Any]]:
        name = [output, *_saturating(judged, output)][passed]
        runner = runtime.load(expose(judged, [name]), optimize=False)
        yield from (np.array(to_host(runner.run(feeds)[name])) for feeds in images)

    wanted = list(answers(model))

    def score(changed: onnx.ModelProto) -> float:
        total = Accumulator()
        for own, value in zip(answers(changed), wanted, strict=True):
            total.add(own, value)
        return total.difference.sqnr_db

    return score


def _saturating(model: onnx.ModelProto, output: str) -> list[str]:
    """What the saturating steps right before an output read, from the last on.

    Behind them errors hide: a Sigmoid far from zero answers one and the same, and an ArgMax counts in whole classes.
    """
    makers = {name: node for node in model.graph.node for name in node.output}
    found: list[str] = []
    name = output
    while (node := makers.get(name)) is not None and node.op_type in SATURATING | ARRANGING and not node.domain:
        name = node.input[0]
        found += [name] if node.op_type in SATURATING else []
    return found


def _with_half(
    found: Examination, model: onnx.ModelProto, reference: Trace, feeds: Feeds, runtime: Runtime, output: str
) -> Examination:
    try:
        wanted = np.array(to_host(runtime.load(model, optimize=False).run(feeds)[output]))
    except CalibError:
        return found
    check = check_half(model, feeds, wanted, output, runtime)
    cause = half_cause(check, reference_too=check.falls and _falls_too(reference, runtime))
    if cause is None:
        return replace(found, half=check)
    if cause.severity == "remark":
        return replace(found, half=check, remarks=(*found.remarks, cause))
    return replace(found, half=check, causes=(*found.causes, cause))


def _falls_too(reference: Trace, runtime: Runtime) -> bool:
    """Whether float16 spoils the reference as well: then it is the network's nature, and no fault of the candidate."""
    if not isinstance(reference, OnnxTrace) or is_half(reference.model) or not reference.outputs:
        return False
    feeds = {name: reference.values[name] for name in reference.inputs}
    name = reference.model.graph.output[0].name
    wanted = reference.values.get(reference.resolve(name))
    return wanted is not None and check_half(reference.model, feeds, wanted, name, runtime).falls
