"""Two oracles: what a runtime answers, and what the ONNX specification says, node by node on small tensors.

Resize is computed in exact arithmetic (:mod:`calib.core.resizespec`); other operators by ONNX's reference evaluator,
which is the specification's own implementation. Where the two disagree the runtime is at fault, not the export.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.difference import difference
from calib.core.resizespec import resize, spec_of
from calib.stages.diagnose.onnxtrace import OnnxTrace, Runtime
from calib.stages.diagnose.steprun import Mend, run_step, step_model
from calib.stages.diagnose.trace import Step
from calib.types.diagnosis import Cause

JUDGED = frozenset(
    {
        "AveragePool", "MaxPool", "LpPool", "GlobalAveragePool", "ConvTranspose", "GridSample", "Softmax", "LogSoftmax",
        "InstanceNormalization", "GroupNormalization", "LayerNormalization", "BatchNormalization", "HardSwish", "Gelu",
        "HardSigmoid", "Pad", "DepthToSpace", "SpaceToDepth", "LRN", "Clip", "PRelu", "LeakyRelu", "CumSum", "Slice",
    }
)  # fmt: skip
"""Operators whose runtimes are known to disagree, or that are cheap to check."""
MOST_ELEMENTS = 1 << 18
SIDE = 16
"""Maps are cut to this many rows and columns for the reference evaluator, which is slow."""
CHANNELS = 4
ROUNDING = 1e-4
MOST_NODES = 96


@dataclass(frozen=True)
class Disagreement:
    """A node to which runtime and specification answer differently.

    Attributes:
        node: its label.
        kind: operator.
        share: share of the elements that differ beyond rounding, 0..1.
        relative: relative error of the runtime's answer.
        first: index of the first such element.
        runtime: the runtime's value there.
        specification: the specification's.
    """

    node: str
    kind: str
    share: float
    relative: float
    first: tuple[int, ...]
    runtime: float
    specification: float

    @property
    def words(self) -> str:
        """Say it, with who is right."""
        place = ", ".join(map(str, self.first))
        return (
            f"{self.node} ({self.kind}): at [{place}] the runtime answers {self.runtime:g}, the ONNX specification "
            f"{self.specification:g}; the specification is right, {self.share:.2%} of the elements differ"
        )


def disagreements(
    trace: OnnxTrace, runtime: Runtime, value: Callable[[str], NDArray[Any] | None] | None = None
) -> list[Disagreement]:
    """Compare a runtime with the specification on every node that can be judged.

    Args:
        trace: of the network.
        runtime: runs single steps.
        value: what a step reads; default the trace's own values.
    """
    found: list[Disagreement] = []
    look = value or trace.values.get
    judged = [step for step in trace.steps if step.kind == "Resize" or step.kind in JUDGED][:MOST_NODES]
    for step in judged:
        data = {name: array for name in step.data if (array := look(name)) is not None}
        if len(data) < len(set(step.data)) or not step.outputs:
            continue
        pair = _both(trace, step, data, runtime)
        if pair is not None:
            found.extend(_disagree(step, *pair))
    return found


def _both(
    trace: OnnxTrace, step: Step, data: Mapping[str, NDArray[Any]], runtime: Runtime
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    if step.kind == "Resize":
        return _of_resize(trace, step, data, runtime)
    small = {name: _cut(step, value) for name, value in data.items()}
    if sum(value.size for value in small.values()) > MOST_ELEMENTS:
        return None
    answer = run_step(trace, step, small, runtime)
    exact = _by_evaluator(step_model(trace, step, small), small)
    if answer is None or exact is None:
        return None
    own = answer[step.outputs[0]]
    return (own, exact) if own.shape == exact.shape else None


def _of_resize(
    trace: OnnxTrace, step: Step, data: Mapping[str, NDArray[Any]], runtime: Runtime
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Resize a few channels only: every channel is sampled alike."""
    source = data[step.data[0]]
    axis = 1 if source.ndim == 4 and source.shape[1] <= source.shape[3] else source.ndim - 1
    if step.parameters.get("antialias") or len(step.data) > 1:
        return None
    few = (
        np.ascontiguousarray(source.take(range(min(source.shape[axis], CHANNELS)), axis))
        if _keeps(step, axis)
        else source
    )
    if few.size > 4 * MOST_ELEMENTS:
        return None
    mend = Mend(parameters=_sizes(step, axis, few.shape[axis]))
    own = (run_step(trace, step, {step.data[0]: few}, runtime, mend) or {}).get(step.outputs[0])
    if own is None or own.ndim != few.ndim:
        return None
    given = step.parameters.get("scales")
    scales = tuple(float(item) for item in given) if isinstance(given, tuple) else None
    exact = resize(few, spec_of(step.parameters), own.shape, scales)
    return None if exact is None else (own, exact)


def _keeps(step: Step, axis: int) -> bool:
    """Whether an axis keeps its length."""
    scales = step.parameters.get("scales")
    return isinstance(scales, tuple) and axis < len(scales) and scales[axis] == 1


def _sizes(step: Step, axis: int, length: int) -> dict[str, Any]:
    """The node's sizes for fewer channels, where it states sizes."""
    size = step.parameters.get("size")
    if "sizes" not in step.given or not isinstance(size, tuple):
        return {}
    return {"sizes": [length if place == axis else item for place, item in enumerate(size)]}


def _cut(step: Step, value: NDArray[Any]) -> NDArray[Any]:
    if value.ndim == 4 and len(step.data) == 1 and step.kind not in {"Slice", "Pad"}:
        return np.ascontiguousarray(value[:1, :, :SIDE, :SIDE])
    return value


def _by_evaluator(model: onnx.ModelProto, data: Mapping[str, NDArray[Any]]) -> NDArray[Any] | None:
    from onnx.reference import ReferenceEvaluator

    try:
        with np.errstate(all="ignore"):
            answer: Any = ReferenceEvaluator(model).run(None, dict(data))
            return np.asarray(answer[0])
    except Exception:  # noqa: BLE001  the evaluator raises anything for what it lacks
        return None


def _disagree(step: Step, own: NDArray[Any], exact: NDArray[Any]) -> Iterator[Disagreement]:
    wide, wanted = np.asarray(own, np.float64), np.asarray(exact, np.float64)
    size = float(np.sqrt(np.mean(np.square(wanted[np.isfinite(wanted)])))) if wanted.size else 0.0
    with np.errstate(invalid="ignore"):
        wrong = np.abs(wide - wanted) > ROUNDING * np.maximum(np.abs(wanted), size)
    if not wrong.any():
        return
    first = tuple(int(axis[0]) for axis in np.nonzero(wrong))
    yield Disagreement(
        step.label, step.kind, float(wrong.mean()), difference(wide, wanted).relative, first,
        float(wide[first]), float(wanted[first]),
    )  # fmt: skip


def oracle_remark(found: Disagreement, tensor: str = "") -> Cause:
    """A disagreement as a remark: it is the runtime's rounding, and no fault of the export."""
    return Cause(
        "runtime", "backend-rounding", f"{found.node}: the runtime and the ONNX specification disagree", found.node,
        tensor, evidence=(found.words,), remedy="compare with the runtime that is deployed; the export is not at fault",
        confidence=0.9, severity="remark", details={"share": found.share, "relative_error": found.relative},
    )  # fmt: skip
