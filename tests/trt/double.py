"""A stand-in for TensorRT's Python module, for machines without it.

It follows the documented callback protocol and the traps of the real bindings (github.com/NVIDIA/TensorRT,
python/src/infer/pyInt8.cpp; NvInfer.h): exceptions of callbacks are printed and swallowed, ``get_batch`` must answer
with a pointer an input, the calibration profile's ``opt`` shape is what is read from each, a cache is taken only if its
header names this version and this calibrator, and memory handed to ``write_calibration_cache`` dies after the call.
Engines run the network in ONNX Runtime, on memory that device pointers really point to.
"""

from __future__ import annotations

import ctypes
import json
import math
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import onnx

from calib.core.graph import analyse

MAGIC = b"ptrt-double:"
COMPUTE = {"Conv": "CaskConvolution", "ConvTranspose": "CaskDeconvolutionV2", "MatMul": "gemm", "Gemm": "gemm"}
FORMATS = {
    "int8": "Thirty-two wide channel vectorized row major Int8 format",
    "fp16": "Channel major FP16 format where channel % 8 == 0",
    "fp32": "Row major linear FP32",
}


class HostBuffer:
    """Memory that is on the host, with a real address."""

    def __init__(self, size: int) -> None:
        self.array = np.zeros(max(size, 1), np.uint8)
        self.size = size

    @property
    def pointer(self) -> int:
        return self.array.ctypes.data


class HostMemory:
    """What :class:`calib.edges.tensorrt.buffers.CudaMemory` is on a GPU."""

    stream = 7

    def __init__(self) -> None:
        self.allocated = 0

    def allocate(self, size: int) -> HostBuffer:
        self.allocated += size
        return HostBuffer(size)

    def upload(self, array: np.ndarray, buffer: HostBuffer) -> None:
        assert array.flags.c_contiguous
        assert array.nbytes <= buffer.size
        ctypes.memmove(buffer.pointer, array.ctypes.data, array.nbytes)

    def download(self, buffer: HostBuffer, array: np.ndarray) -> None:
        assert array.nbytes <= buffer.size
        ctypes.memmove(array.ctypes.data, buffer.pointer, array.nbytes)

    def synchronize(self) -> None:
        pass


def enum(name: str, *members: str) -> Any:
    """A class with members that have name and value, like those of the bindings."""

    class Member:
        def __init__(self, value: int) -> None:
            self.value = value
            self.name = members[value]

        def __int__(self) -> int:
            return self.value

        def __repr__(self) -> str:
            return f"{name}.{self.name}"

    Member.__name__ = name
    for value, member in enumerate(members):
        setattr(Member, member, Member(value))
    return Member


def swallowed(callback: str, function: Any, *arguments: Any) -> Any:
    """Call as the bindings do: whatever is raised is printed and taken for nothing."""
    try:
        return function(*arguments)
    except Exception as error:
        print(f"[ERROR] Exception caught in {callback}(): {error}", file=sys.stderr)
        return None


def make_tensorrt(version: str = "10.14.1.48") -> ModuleType:
    """The module, of a version."""
    module = ModuleType("tensorrt")
    major = int(version.partition(".")[0])
    number = "".join(f"{int(part):02}" for part in version.split(".")[:3]).lstrip("0")
    module.__version__ = version
    module.events = []
    _add_enums(module, major)
    _add_logging(module)
    _add_network(module, major)
    if major < 11:
        _add_calibrators(module)
    _add_building(module, major, number)
    _add_running(module, version)
    return module


def _add_enums(module: Any, major: int) -> None:
    module.DataType = enum("DataType", "FLOAT", "HALF", "INT8", "INT32", "BOOL", "UINT8", "FP8", "BF16", "INT64")
    module.LayerType = enum(
        "LayerType", "CONVOLUTION", "DECONVOLUTION", "MATRIX_MULTIPLY", "CONSTANT", "SHAPE", "OTHER"
    )
    module.TensorIOMode = enum("TensorIOMode", "NONE", "INPUT", "OUTPUT")
    module.ProfilingVerbosity = enum("ProfilingVerbosity", "LAYER_NAMES_ONLY", "NONE", "DETAILED")
    module.LayerInformationFormat = enum("LayerInformationFormat", "ONELINE", "JSON")
    module.MemoryPoolType = enum("MemoryPoolType", "WORKSPACE")
    flags = ["EXPLICIT_BATCH", "STRONGLY_TYPED"] if major < 11 else ["STRONGLY_TYPED"]
    module.NetworkDefinitionCreationFlag = enum("NetworkDefinitionCreationFlag", *flags)
    weak = ["FP16", "BF16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"]
    module.BuilderFlag = enum("BuilderFlag", "TF32", "DISABLE_TIMING_CACHE", *(weak if major < 11 else []))


def _add_logging(module: Any) -> None:
    class ILogger:
        Severity = enum("Severity", "INTERNAL_ERROR", "ERROR", "WARNING", "INFO", "VERBOSE")

        def __init__(self) -> None:
            self.ready = True

        def log(self, severity: Any, msg: str) -> None:
            raise NotImplementedError

    class IProfiler:
        def __init__(self) -> None:
            self.ready = True

    module.ILogger, module.IProfiler = ILogger, IProfiler


class Shape(tuple):
    """``Dims``: unknown lengths are -1."""

    @classmethod
    def of(cls, lengths: Any) -> Shape:
        return cls(-1 if length is None else length for length in lengths)


def _add_network(module: Any, major: int) -> None:
    class Layer:
        def __init__(self, node: onnx.NodeProto) -> None:
            self.name = node.name or f"node_of_{node.output[0]}"
            self.node = node
            self.metadata = f"[ONNX Layer: {self.name}]"
            self.num_inputs, self.num_outputs = len(node.input), len(node.output)
            kinds = {"Conv": "CONVOLUTION", "ConvTranspose": "DECONVOLUTION", "Constant": "CONSTANT", "Shape": "SHAPE"}
            self.type = getattr(module.LayerType, kinds.get(node.op_type, "OTHER"))
            if major < 11:
                self.precision = None

    class Network:
        def __init__(self, flags: int) -> None:
            self.strongly_typed = major >= 11 or bool(
                flags & (1 << int(module.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
            )
            self.model: onnx.ModelProto | None = None
            self.layers: list[Layer] = []
            self.name = ""

        num_layers = property(lambda self: len(self.layers))

        def get_layer(self, index: int) -> Layer:
            return self.layers[index]

    class OnnxParser:
        def __init__(self, network: Network, logger: Any) -> None:
            assert logger.ready
            self.network, self.errors = network, []

        num_errors = property(lambda self: len(self.errors))

        def get_error(self, index: int) -> Any:
            return self.errors[index]

        def parse(self, model: bytes, path: str | None = None) -> bool:
            del path
            self.network.model = onnx.load_model_from_string(model)
            for index, node in enumerate(self.network.model.graph.node):
                if node.op_type == "Unsupported":
                    self.errors.append(
                        SimpleNamespace(
                            desc=lambda: "no importer", node=lambda index=index: index,
                            node_name=lambda node=node: node.name, node_operator=lambda node=node: node.op_type,
                        )
                    )  # fmt: skip
                self.network.layers.append(Layer(node))
            return not self.errors

    module.OnnxParser, module.Network = OnnxParser, Network


def _add_calibrators(module: Any) -> None:
    class IInt8Calibrator:
        algorithm = ""

        def __init__(self) -> None:
            self.ready = True

    for name, algorithm in (
        ("IInt8LegacyCalibrator", "LegacyCalibration"),
        ("IInt8EntropyCalibrator", "EntropyCalibration"),
        ("IInt8EntropyCalibrator2", "EntropyCalibration2"),
        ("IInt8MinMaxCalibrator", "MinMaxCalibration"),
    ):
        setattr(module, name, type(name, (IInt8Calibrator,), {"algorithm": algorithm}))
    module.IInt8Calibrator = IInt8Calibrator


class HostBytes:
    """``IHostMemory``: readable as a buffer while it lives."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def __buffer__(self, flags: int) -> memoryview:
        del flags
        return memoryview(self.data)


def as_host_memory(data: bytes) -> Any:
    """Python before 3.12 has no ``__buffer__``; bytes themselves are such an object there."""
    return HostBytes(data) if sys.version_info >= (3, 12) else data


def _add_building(module: Any, major: int, number: str) -> None:
    class Profile:
        def __init__(self) -> None:
            self.shapes: dict[str, tuple[Any, Any, Any]] = {}

        def set_shape(self, input: str, min: Any, opt: Any, max: Any) -> None:
            if not all(low <= usual <= high for low, usual, high in zip(min, opt, max, strict=True)):
                raise ValueError("shapes are not in order")
            self.shapes[input] = (tuple(min), tuple(opt), tuple(max))

    class TimingCache:
        def __init__(self, data: bytes) -> None:
            self.data = data

        def serialize(self) -> Any:
            return as_host_memory(self.data)

    class Config:
        def __init__(self, logger: Any) -> None:
            self.logger = logger
            self.flags: set[str] = set()
            self.profiles: list[Profile] = []
            self.profiling_verbosity = module.ProfilingVerbosity.LAYER_NAMES_ONLY
            self.timing: TimingCache | None = None
            self.calibration_profile: Profile | None = None
            if major < 11:
                self.int8_calibrator = None

        def set_flag(self, flag: Any) -> None:
            self.flags.add(flag.name)

        def add_optimization_profile(self, profile: Profile) -> int:
            self.profiles.append(profile)
            return len(self.profiles) - 1

        def create_timing_cache(self, serialized_timing_cache: bytes) -> TimingCache:
            return TimingCache(bytes(serialized_timing_cache))

        def set_timing_cache(self, cache: TimingCache, ignore_mismatch: bool) -> bool:
            if (
                cache.data
                and not cache.data.startswith(f"timing:{module.__version__}".encode())
                and not ignore_mismatch
            ):
                self.logger.log(module.ILogger.Severity.ERROR, "timing cache of another version")
                return False
            cache.data = f"timing:{module.__version__}".encode()
            self.timing = cache
            return True

        def get_timing_cache(self) -> TimingCache | None:
            return self.timing

        if major < 11:

            def set_calibration_profile(self, profile: Profile) -> bool:
                self.calibration_profile = profile
                return True

    class Builder:
        def __init__(self, logger: Any) -> None:
            assert logger.ready
            self.logger = logger

        def create_network(self, flags: int = 0) -> Any:
            return module.Network(flags)

        def create_builder_config(self) -> Config:
            return Config(self.logger)

        def create_optimization_profile(self) -> Profile:
            return Profile()

        def build_serialized_network(self, network: Any, config: Config) -> Any:
            error = module.ILogger.Severity.ERROR
            graph = analyse(network.model)
            for tensor in graph.inputs:
                if None in (tensor.shape or ()) and not any(tensor.name in item.shapes for item in config.profiles):
                    self.logger.log(error, f"{tensor.name}: dynamic dimensions need an optimization profile")
                    return None
            scales: dict[str, float] = {}
            if "INT8" in config.flags and not network.strongly_typed:
                calibrated = _calibrate(module, number, graph, config, self.logger)
                if calibrated is None:
                    return None
                scales = calibrated
            return as_host_memory(MAGIC + json.dumps(_plan(module, network, graph, config, scales)).encode())

    module.Builder, module.IBuilderConfig = Builder, Config


def _calibrate(module: Any, number: str, graph: Any, config: Any, logger: Any) -> dict[str, float] | None:
    """Take the cache, or calibrate, as the real builder does; None fails the build."""
    calibrator, severity = config.int8_calibrator, module.ILogger.Severity
    if calibrator is None:
        return {}
    assert calibrator.ready, "the base class's __init__ was not called"
    header = f"TRT-{number}-{calibrator.algorithm}"
    data = swallowed("read_calibration_cache", calibrator.read_calibration_cache)
    if data is not None and bytes(data).partition(b"\n")[0].decode() == header:
        module.events.append("cache taken")
        lines = bytes(data).decode().splitlines()[1:]
        scales = {}
        for line in lines:
            name, _, digits = line.rpartition(":")
            scales[name] = float(np.uint32(int(digits, 16)).view(np.float32))
        for item in graph.activations:
            if item.name not in scales:
                text = (
                    f"Missing scale and zero-point for tensor {item.name}, expect fall back to non-int8 implementation"
                )
                logger.log(severity.WARNING, text)
        return scales
    return _calibrate_on_batches(module, header, graph, config, logger)


def _calibrate_on_batches(module: Any, header: str, graph: Any, config: Any, logger: Any) -> dict[str, float] | None:
    calibrator, names = config.int8_calibrator, [tensor.name for tensor in graph.inputs]
    shapes = {tensor.name: tensor.shape for tensor in graph.inputs}
    if config.calibration_profile is not None:
        shapes |= {name: opt for name, (_, opt, _) in config.calibration_profile.shapes.items()}
    amax, batches = dict.fromkeys(names, 0.0), 0
    while True:
        pointers = swallowed("get_batch", calibrator.get_batch, list(names))
        if not pointers:
            break
        assert len(pointers) == len(names), "the bindings would read beyond the list"
        for name, pointer in zip(names, pointers, strict=True):
            data = ctypes.string_at(int(pointer), 4 * math.prod(shapes[name]))
            amax[name] = max(amax[name], float(np.abs(np.frombuffer(data, np.float32)).max()))
        batches += 1
    module.events.append(f"{batches} batches")
    if not batches:
        logger.log(module.ILogger.Severity.ERROR, "Calibration failure occurred with no scaling factors detected.")
        return None
    found = {item.name: amax.get(item.name, 1.0) / 127 for item in graph.activations}
    lines = [header, *(f"{name}: {int(np.float32(scale).view(np.uint32)):x}" for name, scale in found.items())]
    buffer = bytearray(("\n".join(lines) + "\n").encode())
    swallowed("write_calibration_cache", calibrator.write_calibration_cache, memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    return found


def _plan(module: Any, network: Any, graph: Any, config: Any, scales: dict[str, float]) -> dict[str, Any]:
    layers, last = [], {}
    for layer in network.layers:
        if layer.node.op_type not in COMPUTE:
            continue
        kind = _kind_of(module, layer, network, graph, config, scales)
        source = layer.node.input[0]
        if last.get(source, "fp32") != kind:
            layers.append(
                _described(
                    f"Reformatting CopyNode for Input Tensor 0 to {layer.name}",
                    "Reformat",
                    "",
                    last.get(source, "fp32"),
                    kind,
                    layer.node,
                )
            )
        layers.append(_described(layer.name, COMPUTE[layer.node.op_type], layer.metadata, kind, kind, layer.node))
        last[layer.node.output[0]] = kind
    if config.profiling_verbosity.name != "DETAILED":
        layers = [layer["Name"] for layer in layers]
    io = [tensor.name for tensor in (*graph.inputs, *graph.outputs)]
    profile = {name: list(map(list, shapes)) for item in config.profiles for name, shapes in item.shapes.items()}
    return {
        "version": module.__version__,
        "layers": layers,
        "io": io,
        "profile": profile,
        "model": network.model.SerializeToString().hex(),
    }


def _kind_of(module: Any, layer: Any, network: Any, graph: Any, config: Any, scales: dict[str, float]) -> str:
    if network.strongly_typed:
        made = graph.producer(layer.node.input[0])
        if made is not None and made.op_type == "DequantizeLinear":
            return "int8"
        return "fp16" if graph.elem_types.get(layer.node.input[0]) == "float16" else "fp32"
    pinned = layer.precision
    if pinned is not None and "OBEY_PRECISION_CONSTRAINTS" in config.flags:
        return {"HALF": "fp16", "FLOAT": "fp32", "INT8": "int8"}[pinned.name]
    if layer.node.input[0] in scales and layer.node.output[0] in scales:
        return "int8"
    return "fp16" if "FP16" in config.flags else "fp32"


def _described(name: str, kind: str, metadata: str, source: str, target: str, node: onnx.NodeProto) -> dict[str, Any]:
    layer = {
        "Name": name,
        "LayerType": kind,
        "Inputs": [{"Name": node.input[0], "Dimensions": [1, 8, 24, 32], "Format/Datatype": FORMATS[source]}],
        "Outputs": [{"Name": node.output[0], "Dimensions": [1, 8, 24, 32], "Format/Datatype": FORMATS[target]}],
        "TacticName": f"sm80_{target}",
        "Metadata": metadata,
    }
    if kind != "Reformat":
        layer["Weights"] = {"Type": {"int8": "Int8", "fp16": "Half", "fp32": "Float"}[source], "Count": 9}
    return layer


def schema_11(layer: Any) -> Any:
    """The same layer as TensorRT 11 tells it: format and type apart."""
    if isinstance(layer, str):
        return layer
    told = dict(layer)
    for side in ("Inputs", "Outputs"):
        told[side] = [
            {"Name": item["Name"], "Dimensions": item["Dimensions"], "Format": "kLINEAR",
             "Datatype": next(name for name, words in (("Int8", "Int8"), ("Half", "FP16"), ("Float", "FP32"))
                              if words in item["Format/Datatype"])}
            for item in layer[side]
        ]  # fmt: skip
    return told


def _add_running(module: Any, version: str) -> None:
    class Context:
        def __init__(self, engine: Any) -> None:
            self.engine, self.shapes, self.addresses, self.profiler = engine, {}, {}, None

        def set_input_shape(self, name: str, shape: Any) -> bool:
            low, _, high = self.engine.get_tensor_profile_shape(name, 0)
            fits = len(shape) == len(low) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
            if fits:
                self.shapes[name] = tuple(shape)
            return fits

        def get_tensor_shape(self, name: str) -> Any:
            return Shape(
                self._run({key: np.zeros(shape, np.float32) for key, shape in self.shapes.items()})[name].shape
            )

        def set_tensor_address(self, name: str, memory: int) -> bool:
            self.addresses[name] = memory
            return True

        def execute_async_v3(self, stream_handle: int) -> bool:
            assert stream_handle
            feeds = {}
            for name, shape in self.shapes.items():
                data = ctypes.string_at(self.addresses[name], 4 * math.prod(shape))
                feeds[name] = np.frombuffer(data, np.float32).reshape(shape)
            for name, array in self._run(feeds).items():
                ctypes.memmove(self.addresses[name], np.ascontiguousarray(array).ctypes.data, array.nbytes)
            if self.profiler is not None:
                for index, layer in enumerate(self.engine.plan["layers"]):
                    self.profiler.report_layer_time(layer["Name"], 0.25 + index)
            return True

        def _run(self, feeds: Any) -> Any:
            import onnxruntime as ort

            options = ort.SessionOptions()
            options.log_severity_level = 4
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            session = ort.InferenceSession(bytes.fromhex(self.engine.plan["model"]), options, ["CPUExecutionProvider"])
            names = [item.name for item in session.get_outputs()]
            return dict(zip(names, session.run(names, feeds), strict=True))

    class Engine:
        def __init__(self, plan: Any) -> None:
            self.plan = plan
            self.graph = analyse(onnx.load_model_from_string(bytes.fromhex(plan["model"])))
            self.tensors = {item.name: item for item in (*self.graph.inputs, *self.graph.outputs)}

        num_io_tensors = property(lambda self: len(self.plan["io"]))
        num_layers = property(lambda self: len(self.plan["layers"]))

        def get_tensor_name(self, index: int) -> str:
            return self.plan["io"][index]

        def get_tensor_mode(self, name: str) -> Any:
            inputs = [item.name for item in self.graph.inputs]
            return module.TensorIOMode.INPUT if name in inputs else module.TensorIOMode.OUTPUT

        def get_tensor_shape(self, name: str) -> Any:
            return Shape.of(self.tensors[name].shape)

        def get_tensor_dtype(self, name: str) -> Any:
            names = {"float32": "FLOAT", "float16": "HALF", "int64": "INT64", "int8": "INT8"}
            return getattr(module.DataType, names[self.tensors[name].elem_type])

        def get_tensor_profile_shape(self, name: str, profile_index: int) -> Any:
            del profile_index
            shape = tuple(self.tensors[name].shape)
            return [tuple(item) for item in self.plan["profile"].get(name, [shape] * 3)]

        def create_execution_context(self) -> Context:
            return Context(self)

        def create_engine_inspector(self) -> Any:
            return SimpleNamespace(get_engine_information=lambda _: self._information())

        def _information(self) -> str:
            if int(version.partition(".")[0]) < 11:
                return json.dumps({"Layers": self.plan["layers"], "Bindings": self.plan["io"]})
            io = [{"Name": name, "IOMode": "Input", "DataType": "Float"} for name in self.plan["io"]]
            return json.dumps({"Layers": [schema_11(layer) for layer in self.plan["layers"]], "I/O Tensors": io})

    class Runtime:
        def __init__(self, logger: Any) -> None:
            assert logger.ready
            self.logger = logger

        def deserialize_cuda_engine(self, serialized_engine: bytes) -> Engine | None:
            data = bytes(serialized_engine)
            if data.startswith(MAGIC):
                plan = json.loads(data[len(MAGIC) :])
                if plan["version"] == version:
                    return Engine(plan)
            text = "The engine plan file is not compatible with this version of TensorRT"
            self.logger.log(module.ILogger.Severity.ERROR, text)
            return None

    module.Runtime = Runtime
