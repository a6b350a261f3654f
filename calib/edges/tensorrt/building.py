"""Building an engine, as far as TensorRT 10 and 11 do it alike: parse, profiles, timing cache, serialize, inspect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from calib.core.engine.shapes import ShapeRange
from calib.edges.tensorrt.library import Log, make_logger
from calib.errors import CalibError, ModelError

if TYPE_CHECKING:
    import tensorrt as trt


class EngineError(CalibError):
    """TensorRT could not build or load an engine."""


@dataclass(frozen=True)
class BuiltEngine:
    """A finished build.

    Attributes:
        plan: the serialized engine.
        timing_cache: serialized, to speed up the next build.
        layer_info: JSON of the engine's layers.
        calibration_cache: what native calibration found, or None.
        log: what TensorRT said.
    """

    plan: bytes
    timing_cache: bytes
    layer_info: str
    calibration_cache: bytes | None
    log: Log


@dataclass
class Workbench:
    """A builder with its network and configuration, ready for what differs between versions."""

    log: Log
    logger: trt.ILogger
    builder: trt.Builder
    network: trt.INetworkDefinition
    config: trt.IBuilderConfig


def open_workbench(
    model: bytes,
    place: Path,
    shapes: Mapping[str, ShapeRange],
    timing_cache: bytes | None,
    *,
    strongly_typed: bool,
) -> Workbench:
    """Parse a network and prepare its build.

    Args:
        model: serialized ONNX; external data is found beside ``place``.
        place: the file it came from.
        shapes: of inputs that leave lengths open.
        timing_cache: kept from an earlier build, or None.
        strongly_typed: take every type from the network.

    Raises:
        ModelError: TensorRT's parser refuses the network.
        EngineError: a shape does not fit, or the timing cache is of another TensorRT or GPU.
    """
    import tensorrt as trt

    log = Log()
    logger = make_logger(log)
    builder = trt.Builder(logger)
    flags = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if strongly_typed else 0
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model, str(place)):
        raise _refused(place, [parser.get_error(index) for index in range(parser.num_errors)], log)
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    bench = Workbench(log, logger, builder, network, config)
    if shapes:
        config.add_optimization_profile(make_profile(bench, shapes))
    _set_timing_cache(bench, timing_cache)
    return bench


def make_profile(bench: Workbench, shapes: Mapping[str, ShapeRange]) -> trt.IOptimizationProfile:
    """Make an optimization profile.

    Raises:
        EngineError: TensorRT refuses a shape.
    """
    profile = bench.builder.create_optimization_profile()
    for name, item in shapes.items():
        try:
            profile.set_shape(name, item.low, item.opt, item.high)
        except (ValueError, RuntimeError) as error:
            raise EngineError(
                f"--shapes {name}",
                expected="shapes that TensorRT takes",
                got=str(error) or bench.log.why(),
                remedy="compare them with the network's input shape",
            ) from error
    return profile


def _set_timing_cache(bench: Workbench, data: bytes | None) -> None:
    cache = bench.config.create_timing_cache(data or b"")
    if not bench.config.set_timing_cache(cache, False):
        raise EngineError(
            "--timing-cache",
            expected="a timing cache of this TensorRT and GPU",
            got=bench.log.why(),
            remedy="delete the file; the build then times every kernel again",
        )


def serialize(bench: Workbench) -> bytes:
    """Run the build.

    Raises:
        EngineError: it failed; the message holds TensorRT's reasons.
    """
    plan = bench.builder.build_serialized_network(bench.network, bench.config)
    if plan is None:
        raise EngineError(
            "TensorRT's build",
            expected="an engine",
            got=bench.log.why(),
            remedy="see the reasons; usual are pinned layers without an implementation, and too little GPU memory",
        )
    return bytes(memoryview(plan))


def finish(bench: Workbench, plan: bytes, calibration_cache: bytes | None = None) -> BuiltEngine:
    """Gather what a build leaves besides the engine.

    Raises:
        EngineError: the engine cannot be loaded again.
    """
    import tensorrt as trt

    kept = bench.config.get_timing_cache()
    timing = b"" if kept is None else bytes(memoryview(kept.serialize()))
    engine = trt.Runtime(bench.logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise _unloadable("the engine just built", bench.log)
    inspector = engine.create_engine_inspector()
    text = inspector.get_engine_information(trt.LayerInformationFormat.JSON)
    return BuiltEngine(plan, timing, text, calibration_cache, bench.log)


def _unloadable(place: str, log: Log) -> EngineError:
    return EngineError(
        place,
        expected="an engine of this TensorRT and GPU",
        got=log.why(),
        remedy="engines are not portable: build it with the TensorRT and on the kind of GPU it is to run with",
    )


def load_engine(plan: bytes, place: str, logger: trt.ILogger, log: Log) -> trt.ICudaEngine:
    """Load a serialized engine.

    Raises:
        EngineError: it is of another TensorRT or GPU, or damaged.
    """
    import tensorrt as trt

    engine = trt.Runtime(logger).deserialize_cuda_engine(plan)
    if engine is None:
        raise _unloadable(place, log)
    return engine


def _refused(place: Path, errors: Sequence[trt.ParserError], log: Log) -> ModelError:
    told = [f"node {item.node_name() or item.node()} ({item.node_operator()}): {item.desc()}" for item in errors]
    return ModelError(
        str(place),
        expected="a network that TensorRT's parser takes",
        got=("; ".join(told) or log.why())[:800],
        remedy="replace the operator or export with another opset; a newer TensorRT may know it",
    )
