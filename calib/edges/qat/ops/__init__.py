"""ONNX operators in PyTorch, by name: what a segmentation network is made of, differentiable and on any device."""

from __future__ import annotations

from collections.abc import Mapping

from calib.edges.qat.ops import elementwise, indexing, layers, pooling, reductions, resize, shaping
from calib.edges.qat.ops.call import Call, Operator, Tensor

__all__ = ["OPERATORS", "Call", "Operator", "Tensor"]

OPERATORS: Mapping[str, Operator] = {
    **elementwise.OPERATORS,
    **layers.OPERATORS,
    **pooling.OPERATORS,
    **shaping.OPERATORS,
    **indexing.OPERATORS,
    **reductions.OPERATORS,
    **resize.OPERATORS,
}
"""Operators of the standard domain. Constants are values, not calls; control flow is not among them."""
