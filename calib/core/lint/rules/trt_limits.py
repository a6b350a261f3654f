"""Settings of known operators that TensorRT's parser refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from calib.core.graph import Node
from calib.core.lint.rule import Rule, Sighting, at, levels
from calib.core.lint.sources import TRT_OPERATORS
from calib.core.lint.subject import Subject, ints, number, text

LARGEST_K = 3840
Limit = Callable[[Node, Subject], str]


def check(subject: Subject) -> Iterator[Sighting]:
    """List nodes with a setting that the parser's documentation or checks rule out."""
    for node in subject.nodes(*LIMITS):
        if any(not subject.is_constant(name) for name in node.outputs if name):
            said = LIMITS[node.op_type](node, subject)
            if said:
                yield at(node, said)


def _rank(node: Node, subject: Subject) -> int | None:
    shape = subject.network.shapes.get(node.input(0))
    return None if shape is None else len(shape)


def _pool(node: Node, subject: Subject) -> str:
    if any(step != 1 for step in ints(node, "dilations") or ()):
        return f"dilations {ints(node, 'dilations')}"
    if node.op_type == "MaxPool" and any(node.outputs[1:]):
        return "the indices output"
    if node.op_type == "LpPool" and number(node, "p", 2) not in {1, 2}:
        return f"p {number(node, 'p', 2):g}"
    rank = _rank(node, subject)
    return "" if rank is None or 3 <= rank <= 5 else f"an input of {rank} axes"


def _convolution(node: Node, subject: Subject) -> str:
    rank = _rank(node, subject)
    return "" if rank is None or 3 <= rank <= 5 else f"an input of {rank} axes"


def _grid_sample(node: Node, subject: Subject) -> str:
    rank = _rank(node, subject)
    return "" if rank in {None, 4} else f"an input of {rank} axes; 4 are taken"


def _top_k(node: Node, subject: Subject) -> str:
    if not number(node, "sorted", 1):
        return "sorted 0"
    count = (subject.numbers(node.input(1)) or (0.0,))[0]
    return f"k {count:g}; below {LARGEST_K} is taken" if count >= LARGEST_K else ""


def _scatter(node: Node, subject: Subject) -> str:
    del subject
    reduction = text(node, "reduction", "none")
    return "" if reduction == "none" else f"reduction {reduction}"


def _recurrent(node: Node, subject: Subject) -> str:
    del subject
    found = [key for key in ("layout", "input_forget") if number(node, key, 0)]
    return f"{found[0]} {number(node, found[0], 0):g}" if found else ""


def _lp_norm(node: Node, subject: Subject) -> str:
    del subject
    power = number(node, "p", 2)
    return "" if power in {1, 2} else f"p {power:g}"


def _layer_norm(node: Node, subject: Subject) -> str:
    del subject
    return "outputs beyond the first" if any(node.outputs[1:]) else ""


def _upsample(node: Node, subject: Subject) -> str:
    del subject
    mode = text(node, "mode", "nearest")
    return "" if mode in {"nearest", "linear", "bilinear"} else f"mode {mode}"


LIMITS: Mapping[str, Limit] = {
    "AveragePool": _pool,
    "MaxPool": _pool,
    "LpPool": _pool,
    "Conv": _convolution,
    "ConvTranspose": _convolution,
    "GridSample": _grid_sample,
    "TopK": _top_k,
    "ScatterND": _scatter,
    "LSTM": _recurrent,
    "LpNormalization": _lp_norm,
    "LayerNormalization": _layer_norm,
    "Upsample": _upsample,
}


RULE = Rule(
    id="trt-limits",
    title="Setting that TensorRT's parser refuses",
    why="The operator is supported, this setting of it is not: the parser stops at the node.",
    remedy="change the setting in the model's code, or express the node by others",
    sources=(TRT_OPERATORS,),
    levels=levels(trt="error"),
    check=check,
)
