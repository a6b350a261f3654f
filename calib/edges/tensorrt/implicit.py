"""TensorRT 10: a weakly typed network with a calibrator, and layers pinned to float. None of it exists in 11."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calib.core.engine.shapes import ShapeRange
from calib.edges.tensorrt.building import BuiltEngine, Workbench, finish, make_profile, open_workbench, serialize
from calib.edges.tensorrt.calibration import CacheRun, CalibrationRun
from calib.errors import UsageError

if TYPE_CHECKING:
    import tensorrt as trt

ALGORITHMS = ("EntropyCalibration2", "EntropyCalibration", "MinMaxCalibration")
"""Calibrator classes that can be built with, by the name that a cache's header gives them."""


def make_calibrator(run: CalibrationRun | CacheRun, algorithm: str) -> trt.IInt8Calibrator:
    """Make the calibrator object of an algorithm; it passes every callback on to ``run``.

    Raises:
        UsageError: the algorithm is none that can be built with.
    """
    import tensorrt as trt

    bases: dict[str, Any] = {
        "EntropyCalibration2": trt.IInt8EntropyCalibrator2,
        "EntropyCalibration": trt.IInt8EntropyCalibrator,
        "MinMaxCalibration": trt.IInt8MinMaxCalibrator,
    }
    if algorithm not in bases:
        raise UsageError(
            f"cache algorithm {algorithm}",
            expected="one of " + ", ".join(ALGORITHMS),
            got=algorithm,
            remedy="build with --cache-algorithm EntropyCalibration2",
        )
    base: Any = bases[algorithm]

    class Calibrator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)

        def get_batch_size(self) -> int:
            return run.batch_size

        def get_batch(self, names: list[str]) -> list[int] | None:
            return run.get_batch(names)

        def read_calibration_cache(self) -> bytes | None:
            return run.read_calibration_cache()

        def write_calibration_cache(self, cache: memoryview) -> None:
            run.write_calibration_cache(cache)

    made: trt.IInt8Calibrator = Calibrator()
    return made


def build_implicit(
    model: bytes,
    place: Path,
    shapes: Mapping[str, ShapeRange],
    timing_cache: bytes | None,
    run: CalibrationRun | CacheRun,
    algorithm: str,
    pinned: Mapping[str, str],
    *,
    fp16: bool,
    calibration_shapes: Mapping[str, ShapeRange] | None = None,
) -> tuple[BuiltEngine, frozenset[str]]:
    """Build an INT8 engine with a calibrator.

    Args:
        model: serialized float ONNX.
        place: the file it came from.
        shapes: of inputs that leave lengths open.
        timing_cache: kept from an earlier build, or None.
        run: what the calibrator answers with.
        algorithm: calibrator class, as a cache's header names it.
        pinned: layer name to ``fp16`` or ``fp32``.
        fp16: whether the other float layers may run in FP16.
        calibration_shapes: of the calibration profile, fixed; None for the optimization profile's ``opt``.

    Returns:
        the engine, and the pinned layers that the parsed network has.

    Raises:
        ModelError: TensorRT's parser refuses the network.
        EngineError: the build failed.
        CalibrationError: calibration went wrong, whatever TensorRT made of it.
    """
    import tensorrt as trt

    bench = open_workbench(model, place, shapes, timing_cache, strongly_typed=False)
    bench.config.set_flag(trt.BuilderFlag.INT8)
    if fp16:
        bench.config.set_flag(trt.BuilderFlag.FP16)
    found = pin_layers(bench, pinned)
    profile_shapes = calibration_shapes or shapes
    if profile_shapes:
        bench.config.set_calibration_profile(make_profile(bench, profile_shapes))
    calibrator = make_calibrator(run, algorithm)  # the configuration does not keep it alive
    bench.config.int8_calibrator = calibrator
    try:
        plan = serialize(bench)
    finally:
        _raise_if_calibration_failed(run)
    run.finish()
    return finish(bench, plan, run.written if isinstance(run, CalibrationRun) else None), found


def _raise_if_calibration_failed(run: CalibrationRun | CacheRun) -> None:
    """What went wrong in a callback explains a failed build better than what TensorRT says of it."""
    if isinstance(run, CalibrationRun) and run.failure is not None:
        raise run.failure
    if isinstance(run, CacheRun) and run.asked_for_data:
        run.finish()


def pin_layers(bench: Workbench, pinned: Mapping[str, str]) -> frozenset[str]:
    """Pin layers to float types, as constraints the builder must obey.

    Returns:
        the pinned layers that the network has.
    """
    import tensorrt as trt

    types = {"fp16": trt.DataType.HALF, "fp32": trt.DataType.FLOAT}
    found: set[str] = set()
    for index in range(bench.network.num_layers):
        layer = bench.network.get_layer(index)
        if layer.name in pinned and _computes(layer, (trt.LayerType.CONSTANT, trt.LayerType.SHAPE)):
            layer.precision = types[pinned[layer.name]]
            found.add(layer.name)
    if found:
        bench.config.set_flag(trt.BuilderFlag.OBEY_PRECISION_CONSTRAINTS)
    return frozenset(found)


def _computes(layer: trt.ILayer, excluded: Collection[trt.LayerType]) -> bool:
    return layer.type not in excluded and layer.num_outputs > 0
