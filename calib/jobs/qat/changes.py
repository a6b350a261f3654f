"""What training changed: the range of every quantized tensor, the weights of every layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.core.graph.stored import StoredValues


def range_changes(start: Mapping[str, float], learnt: Mapping[str, float]) -> list[dict[str, Any]]:
    """Compare the ranges of the quantized tensors before and after, in network order.

    Args:
        start: amax at the start.
        learnt: amax after training, of the quantized tensors.

    Returns:
        ``{"tensor", "start", "learnt", "bits"}``; bits is ``log2(learnt / start)``: above 0 coarser and wider, below 0
        finer and narrower; null where the start was 0.
    """
    return [
        {"tensor": name, "start": start.get(name, 0.0), "learnt": amax, "bits": _bits(start.get(name, 0.0), amax)}
        for name, amax in learnt.items()
    ]


def _bits(before: float, after: float) -> float | None:
    return math.log2(after / before) if before > 0 and after > 0 else None


def weight_changes(model: onnx.ModelProto, trained: Mapping[str, NDArray[Any]]) -> list[dict[str, Any]]:
    """Compare weights before and after, in network order.

    Args:
        model: the float network at the start.
        trained: weights after training, by tensor name.

    Returns:
        ``{"tensor", "shape", "change", "amax_bits"}``: change is ``|after - before| / |before|`` (Euclidean norms),
        null where the weights were zero; amax_bits is ``log2`` of the ratio of the largest magnitudes.
    """
    return list(_weight_changes(StoredValues(model), trained))


def _weight_changes(stored: StoredValues, trained: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, Any]]:
    for name, after in trained.items():
        before = stored.value(name)
        if before is None or before.shape != after.shape:
            continue
        wide = before.astype(np.float64)
        norm = float(np.linalg.norm(wide))
        moved = float(np.linalg.norm(after.astype(np.float64) - wide))
        largest = (float(np.abs(item).max(initial=0.0)) for item in (wide, after))
        yield {
            "tensor": name,
            "shape": list(after.shape),
            "change": moved / norm if norm else None,
            "amax_bits": _bits(*largest),
        }
