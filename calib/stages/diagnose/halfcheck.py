"""What float16 does to a network: run its cast on one image, and count what overflows and what vanishes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from calib.core.difference import Difference, difference
from calib.core.expose import expose
from calib.core.graph import Network, analyse
from calib.errors import CalibError
from calib.stages.diagnose.onnxtrace import Runtime
from calib.stages.halve import halve
from calib.types.diagnosis import Cause
from calib.types.runner import Feeds, to_host

LARGEST = 65504.0
VANISHES = 2.0**-25
"""Below this magnitude a number becomes zero in float16."""
FALLS = 5e-2
"""Relative error of the output from which float16 is no rounding any more."""
ADVICE = "keep this node in float32 (calib engine does so where ranges tell), or scale the values down before it"


@dataclass(frozen=True)
class HalfTensor:
    """A float16 tensor that holds what float16 cannot.

    Attributes:
        tensor: its name.
        node: label of the node that makes it.
        elements: its size.
        non_finite: elements that are NaN or infinite.
    """

    tensor: str
    node: str
    elements: int
    non_finite: int


@dataclass(frozen=True)
class HalfCheck:
    """A network's cast to float16 on one image.

    Attributes:
        overflows: tensors with non-finite elements, in network order.
        output: the output against the float32 one.
        nodes: number of nodes that run in float16.
        failure: why it could not be run, or empty.
    """

    overflows: tuple[HalfTensor, ...] = ()
    output: Difference | None = None
    nodes: int = 0
    failure: str = ""

    @property
    def falls(self) -> bool:
        """Whether the output is another one."""
        return self.output is not None and not self.output.relative <= FALLS


def is_half(model: onnx.ModelProto) -> bool:
    """Whether a network computes in a short float type itself."""
    short = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    casts = (item.i for node in model.graph.node if node.op_type == "Cast" for item in node.attribute)
    return any(tensor.data_type in short for tensor in model.graph.initializer) or any(to in short for to in casts)


def rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a float16 network so that ONNX Runtime's CPU really rounds every tensor.

    Where it has no float16 kernel it casts to float32 and back, and drops pairs of casts that meet: values beyond
    float16 then pass unharmed. An Identity between two steps keeps the pairs apart.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    short = {item.name for item in analyse(model).activations if item.elem_type in {"float16", "bfloat16"}}
    nodes = []
    for node in copy.graph.node:
        nodes.append(node)
        for slot, name in enumerate(node.output):
            if name in short:
                node.output[slot] = f"{name}/unrounded"
                nodes.append(helper.make_node("Identity", [node.output[slot]], [name], name=f"{name}/rounded"))
    kept = [onnx.NodeProto() for _ in nodes]
    for own, node in zip(kept, nodes, strict=True):
        own.CopyFrom(node)
    del copy.graph.node[:]
    copy.graph.node.extend(kept)
    del copy.graph.value_info[:]
    return copy


def check_half(model: onnx.ModelProto, feeds: Feeds, wanted: NDArray[Any], output: str, runtime: Runtime) -> HalfCheck:
    """Cast a float network to float16 and run it on one image.

    Args:
        model: float32; may hold Q/DQ.
        feeds: one batch.
        wanted: its float32 output.
        output: name of that output.
        runtime: runs it, without optimizations.
    """
    try:
        halved = halve(model)
        network = analyse(halved.model)
        names = [item.name for item in network.activations if item.elem_type == "float16" and item.producer is not None]
        runner = runtime.load(expose(rounding(halved.model), dict.fromkeys((*names, output))), optimize=False)
        answer = {name: to_host(value) for name, value in runner.run(feeds).items()}
    except CalibError as error:
        return HalfCheck(failure=error.got)
    found = difference(answer[output], wanted)
    return HalfCheck(tuple(_overflows(answer, names, network, _labels(model))), found, len(halved.half))


def _labels(model: onnx.ModelProto) -> frozenset[str]:
    return frozenset(node.label for node in analyse(model).nodes)


def _overflows(
    answer: Mapping[str, NDArray[Any]], names: list[str], network: Network, known: Collection[str]
) -> list[HalfTensor]:
    found = []
    for name in names:
        value = answer[name]
        lost = int(np.count_nonzero(~np.isfinite(value)))
        node = network.producer(name)
        while node is not None and node.label not in known:  # a cast: the node before it made the value
            node = network.producer(node.input(0))
        if lost:
            found.append(HalfTensor(name, node.label if node else name, value.size, lost))
    return found


def half_cause(check: HalfCheck, *, reference_too: bool) -> Cause | None:
    """The cause where float16 spoils the output; a remark where it spoils the reference's just as well."""
    if not check.falls or check.output is None:
        return None
    severity: Any = "remark" if reference_too else "fault"
    error = f"the float16 output has a relative error of {check.output.relative:.2g}"
    if check.overflows:
        first = check.overflows[0]
        seen = (
            f"{first.non_finite} of {first.elements} elements become infinite or NaN",
            f"{len(check.overflows)} tensors hold such values",
            error,
        )
        title = f"{first.node}: overflows float16"
        return Cause(
            "fp16", "fp16-overflow", title, first.node, first.tensor, evidence=seen, remedy=ADVICE, confidence=0.97,
            severity=severity, details={"elements": first.non_finite},
        )  # fmt: skip
    return Cause(
        "fp16", "fp16-precision", "float16 loses the output's precision", "", "", evidence=(error,), remedy=ADVICE,
        confidence=0.5, severity=severity,
    )  # fmt: skip


def range_in_half(value: NDArray[Any]) -> tuple[int, int]:
    """Elements of a float32 tensor that float16 would turn into infinity, and into zero."""
    magnitude = np.abs(value)
    return int(np.count_nonzero(magnitude > LARGEST)), int(np.count_nonzero((magnitude < VANISHES) & (magnitude > 0)))
