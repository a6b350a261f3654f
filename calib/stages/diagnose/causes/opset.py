"""The opset number was edited: the same node means something else under another version."""

from __future__ import annotations

from collections.abc import Iterator

import onnx

from calib.stages.diagnose.case import Case
from calib.stages.diagnose.causes.common import make_cause
from calib.stages.diagnose.onnxtrace import OnnxTrace
from calib.stages.diagnose.steprun import step_model
from calib.stages.diagnose.trace import Step
from calib.types.diagnosis import Cause
from calib.types.runner import to_host

ADVICE = "convert with onnx.version_converter, which rewrites such nodes; editing the number changes what they mean"


def detect(case: Case) -> Iterator[Cause]:
    """Find nodes that are right under the reference's opset and wrong under the candidate's."""
    reference = case.reference
    if not isinstance(reference, OnnxTrace):
        return
    versions = [_version(trace.model) for trace in (reference, case.candidate)]
    if versions[0] == versions[1]:
        return
    for step, other in case.pairs:
        if step is None or other is None or not _same_text(case.candidate.node(step), reference.node(other)):
            continue
        if _healed_under(case, step, versions[0]):
            title = f"{step.label}: {step.kind} means something else at opset {versions[1]} than at {versions[0]}"
            yield make_cause(
                case, step, "opset-edited", title, other=other, remedy=ADVICE, confidence=0.99,
                evidence=(f"the very same node answers as the reference does once read at opset {versions[0]}",),
                details={"before": versions[0], "after": versions[1]},
            )  # fmt: skip


def _version(model: onnx.ModelProto) -> int:
    return max((item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}), default=1)


def _same_text(one: onnx.NodeProto, other: onnx.NodeProto) -> bool:
    def attributes(node: onnx.NodeProto) -> list[bytes]:
        return sorted(item.SerializeToString(deterministic=True) for item in node.attribute)

    return one.op_type == other.op_type and attributes(one) == attributes(other)


def _healed_under(case: Case, step: Step, version: int) -> bool:
    data = {name: case.inputs[name] for name in step.data if name in case.inputs}
    if len(data) < len(set(step.data)):
        return False
    model = step_model(case.candidate, step, data)
    for item in model.opset_import:
        if item.domain in {"", "ai.onnx"}:
            item.version = version
    try:
        answer = case.runtime.load(model, optimize=False).run(data)
    except Exception:  # noqa: BLE001 - a node that this opset does not know is no evidence
        return False
    return case.heals(to_host(answer[step.outputs[0]]))
