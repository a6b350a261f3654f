"""A copy of a network that returns inner tensors."""

from __future__ import annotations

from collections.abc import Iterable

import onnx


def expose(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Copy a model so that exactly the named tensors are its outputs.

    Initialisers that are listed as graph inputs become constants, so that the runtime may fold and fuse them.
    Types are left for the runtime to infer.

    Args:
        model: the network; left as it is.
        names: tensors made by nodes, in the order wanted.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    constants = {tensor.name for tensor in copy.graph.initializer}
    constants |= {tensor.values.name for tensor in copy.graph.sparse_initializer}
    inputs = [value for value in copy.graph.input if value.name not in constants]
    outputs = [onnx.ValueInfoProto(name=name) for name in names]
    del copy.graph.input[:], copy.graph.output[:]
    copy.graph.input.extend(inputs)
    copy.graph.output.extend(outputs)
    return copy
