"""Sparse initialisers as dense ones: no reader of a quantized network takes them, ONNX's own checker neither."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import numpy_helper

from calib.errors import ModelError


def make_dense(graph: onnx.GraphProto) -> None:
    """Turn the sparse initialisers of a graph into dense ones, in place.

    Raises:
        ModelError: the indices of one do not fit its shape or its values.
    """
    for tensor in graph.sparse_initializer:
        graph.initializer.append(_dense(tensor))
    del graph.sparse_initializer[:]


def _dense(tensor: onnx.SparseTensorProto) -> onnx.TensorProto:
    shape, values = tuple(tensor.dims), numpy_helper.to_array(tensor.values)
    indices = numpy_helper.to_array(tensor.indices)
    whole = np.zeros(shape, values.dtype)
    try:
        places = np.unravel_index(indices, shape) if indices.ndim == 1 else tuple(indices.T)
        whole[places] = values
    except (ValueError, IndexError) as error:
        raise ModelError(
            f"sparse initialiser {tensor.values.name!r}",
            expected=f"indices into a tensor of shape {list(shape)}",
            got=str(error),
            remedy="export the model again, with dense weights",
        ) from error
    return numpy_helper.from_array(whole, tensor.values.name)
