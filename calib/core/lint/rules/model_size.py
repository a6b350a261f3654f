"""Models near or beyond protobuf's limit."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx
from onnx import helper

from calib.core.graph.structure import all_tensors
from calib.core.lint.rule import Rule, Sighting, everywhere, whole
from calib.core.lint.sources import ONNX_IR, issue
from calib.core.lint.subject import Subject

LIMIT = 2**31
NEAR = 0.9


def check(subject: Subject) -> Iterator[Sighting]:
    """Report weights that do not fit one protobuf message, or barely do."""
    size = sum(_bytes(tensor) for tensor in all_tensors(subject.model))
    if size > NEAR * LIMIT:
        yield whole(f"weights of {size / 2**30:.2f} GiB")


def _bytes(tensor: onnx.TensorProto) -> int:
    try:
        width = helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
    except (KeyError, TypeError):
        return 0
    return int(math.prod(tensor.dims) * width)


RULE = Rule(
    id="model-size",
    title="Model at the limit of one file",
    why=(
        "A protobuf message ends at 2 GiB: such a model needs its weights beside it, in external data. Tools that "
        "take the model as bytes (TensorRT's parse, onnx.checker, shape inference) fail; those that take a path work."
    ),
    remedy="save with external data, keep both files together, and hand tools the path",
    sources=(ONNX_IR, issue("onnx/onnx", 2974)),
    levels=everywhere("note"),
    check=check,
)
