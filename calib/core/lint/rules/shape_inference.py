"""Nodes whose inputs and attributes contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from calib.core.graph.elements import skeleton
from calib.core.lint.rule import Rule, Sighting, everywhere, whole
from calib.core.lint.sources import ONNX_IR, operator
from calib.core.lint.subject import Subject

NODE = re.compile(r"\(op_type:\s*(?P<op>\w*), node name: (?P<name>[^)]*)\):?\s*")
TAGS = re.compile(r"\[\w*InferenceError\]\s*|Inference error\(s\):\s*")


def check(subject: Subject) -> Iterator[Sighting]:
    """Report the first node at which strict shape and type inference stops.

    Shapes that the file declares for inner tensors and outputs are left out first: a contradiction that is gone
    without them is between the file and itself, and a warning.
    """
    light = skeleton(subject.model)
    message = None if any(node.domain for node in subject.every_node) else _fault(light)
    if message is None or message.count("(op_type:") > 1:  # inside of an operator that ONNX defines by others
        return
    bare = onnx.ModelProto()
    bare.CopyFrom(light)
    del bare.graph.value_info[:]
    for value in bare.graph.output:
        value.type.tensor_type.ClearField("shape")
    inner = _fault(bare)
    if inner is not None:
        yield _sighting(inner)
    else:
        declared = whole(f"declared shapes contradict: {_clean(_fault(light) or '')}", everywhere("warning"))
        yield declared


def _fault(model: onnx.ModelProto) -> str | None:
    try:
        onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
    except Exception as error:  # noqa: BLE001  inference raises its own kinds and C++'s
        return next(iter(str(error).strip().splitlines()), "")  # what follows the first fault is its consequence
    return None


def _sighting(message: str) -> Sighting:
    found = NODE.search(message)
    name = found["name"] if found else ""
    return Sighting(name, _clean(message), "node") if name else whole(_clean(message))


def _clean(message: str) -> str:
    return TAGS.sub("", NODE.sub("", message)).strip() or "it stops without a reason"


RULE = Rule(
    id="shape-inference",
    title="Node whose inputs and attributes contradict each other",
    why=(
        "ONNX's own strict shape and type inference stops at it: an axis that the tensor does not have, a wrong "
        "number of pads, a type that the operator does not take. By the specification the model is invalid; runtimes "
        "refuse it when they load it."
    ),
    remedy="export the model again; where it was edited, look at the edit",
    sources=(ONNX_IR, operator("Softmax")),
    levels=everywhere("error"),
    check=check,
)
