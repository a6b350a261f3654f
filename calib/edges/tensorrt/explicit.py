"""TensorRT 11 (and 10, asked so): a strongly typed network from Q/DQ ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from calib.core.engine.shapes import ShapeRange
from calib.edges.tensorrt.building import BuiltEngine, finish, open_workbench, serialize


def build_explicit(
    model: bytes, place: Path, shapes: Mapping[str, ShapeRange], timing_cache: bytes | None
) -> BuiltEngine:
    """Build an engine whose every type is the network's.

    Args:
        model: serialized Q/DQ ONNX.
        place: the file it came from.
        shapes: of inputs that leave lengths open.
        timing_cache: kept from an earlier build, or None.

    Raises:
        ModelError: TensorRT's parser refuses the network.
        EngineError: the build failed.
    """
    bench = open_workbench(model, place, shapes, timing_cache, strongly_typed=True)
    return finish(bench, serialize(bench))
