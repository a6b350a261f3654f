"""TensorRT 10's calibrators: every failure is loud, every image is read once, and a refused cache is an error."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

from calib.core import trtcache
from calib.core.engine.shapes import ShapeRange
from calib.core.graph import analyse
from calib.edges.tensorrt.buffers import foreign_array
from calib.edges.tensorrt.building import EngineError
from calib.edges.tensorrt.calibration import CacheRun, CalibrationError, CalibrationRun, InputSpec
from calib.edges.tensorrt.implicit import build_implicit, make_calibrator
from calib.errors import ModelError, UsageError
from tests.graphs import model, node, weight
from tests.trt.double import HostMemory

SHAPE = (2, 3, 8, 8)
SPEC = InputSpec("image", SHAPE, "float32")


def network(batch: Any = 2) -> onnx.ModelProto:
    nodes = [node("Conv", "image,w", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b,v", "out")]
    return model(nodes, {"image": (batch, 3, 8, 8)}, ["out"], {"w": weight(4, 3, 3, 3), "v": weight(3, 4, 1, 1)})


def batches(count: int = 3, **changes: Any) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"image": rng.standard_normal(SHAPE).astype(np.float32), **changes} for _ in range(count)]


def run_of(stream: Any, images: int = 6, memory: Any = None) -> CalibrationRun:
    return CalibrationRun([SPEC], stream, images, memory or HostMemory())


def build(provided: Any, run: Any, batch: Any = 2, **changes: Any) -> Any:
    options = {
        "shapes": {},
        "timing_cache": None,
        "algorithm": "EntropyCalibration2",
        "pinned": {},
        "fp16": True,
        **changes,
    }
    made = network(batch)
    return build_implicit(
        made.SerializeToString(),
        "net.onnx",
        options["shapes"],
        options["timing_cache"],
        run,
        options["algorithm"],
        options["pinned"],
        fp16=options["fp16"],
        calibration_shapes=options.get("calibration_shapes"),
    )


def cache_for(version: str, algorithm: str = "EntropyCalibration2") -> bytes:
    entries = [(item.name, 0.02) for item in analyse(network()).activations]
    return trtcache.render(entries, version, algorithm).render()


def test_native_calibration_reads_every_image_and_keeps_the_cache(provide) -> None:
    provided = provide(10)
    stream = batches()
    run = run_of(stream, memory=provided.memory)
    built, _ = build(provided, run)
    assert run.seen == 6
    written = trtcache.parse(built.calibration_cache)
    assert written.header.version == provided.version
    assert "image" in written.scales
    assert built.plan
    if provided.double:
        amax = max(float(np.abs(batch["image"]).max()) for batch in stream)
        assert written.scales["image"] == np.float32(amax / 127)


def test_a_cache_for_this_version_and_class_is_taken(provide) -> None:
    provided = provide(10)
    built, _ = build(provided, CacheRun(cache_for(provided.version)))
    assert built.calibration_cache is None
    assert built.log.missing_scales == []


@pytest.mark.parametrize(
    ("version", "algorithm", "reader"),
    [
        ("10.0.0", "EntropyCalibration2", "EntropyCalibration2"),
        ("8.6.1", "EntropyCalibration2", "EntropyCalibration2"),
        (None, "MinMaxCalibration", "EntropyCalibration2"),
        (None, "EntropyCalibration2", "MinMaxCalibration"),
    ],
)
def test_a_refused_cache_is_an_error_and_never_a_silent_build(provide, version, algorithm, reader) -> None:
    provided = provide(10)
    run = CacheRun(cache_for(version or provided.version, algorithm))
    with pytest.raises(CalibrationError, match="ignored; its header is 'TRT-"):
        build(provided, run, algorithm=reader)


def explode(after: int) -> Any:
    yield from batches(after)
    raise ModelError("images/7.png", expected="an image", got="a hole", remedy="mend it")


FAULTS: dict[str, tuple[Callable[[], Any], int, str]] = {
    "the reader raises at once": (lambda: explode(0), 6, r"images/7\.png"),
    "the reader raises later": (lambda: explode(2), 6, r"images/7\.png"),
    "float64": (lambda: batches(image=np.zeros(SHAPE)), 6, "float64"),
    "float16": (lambda: batches(image=np.zeros(SHAPE, np.float16)), 6, "float16"),
    "another size": (lambda: batches(image=np.zeros((2, 3, 8, 9), np.float32)), 6, r"\[2, 3, 8, 9\]"),
    "a smaller batch": (lambda: batches(image=np.zeros((1, 3, 8, 8), np.float32)), 6, "profile"),
    "a larger batch": (lambda: batches(image=np.zeros((4, 3, 8, 8), np.float32)), 6, "profile"),
    "no batch axis": (lambda: batches(image=np.zeros((3, 8, 8), np.float32)), 6, "profile"),
    "channels last in memory": (
        lambda: batches(image=np.zeros((2, 8, 8, 3), np.float32).transpose(0, 3, 1, 2)), 6, "contiguous"),
    "every other pixel": (lambda: batches(image=np.zeros((2, 3, 8, 16), np.float32)[..., ::2]), 6, "contiguous"),
    "a missing input": (lambda: [{"other": np.zeros(SHAPE, np.float32)}], 6, "nothing"),
    "a list": (lambda: batches(image=[1.0]), 6, "list"),
    "a null address": (lambda: batches(image=0), 6, "address"),
    "too few images": (lambda: batches(2), 6, "4"),
    "too many images": (lambda: batches(4), 6, "8"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_any_failure_in_get_batch_aborts_the_build(provide, name) -> None:
    provided = provide(10)
    stream, images, reason = FAULTS[name]
    run = run_of(stream(), images, provided.memory)
    with pytest.raises((CalibrationError, ModelError), match=reason):
        build(provided, run)


def test_no_batch_at_all_aborts_the_build(provide) -> None:
    provided = provide(10)
    with pytest.raises((CalibrationError, EngineError)):
        build(provided, run_of([], memory=provided.memory))


def test_another_input_than_expected_is_told(double) -> None:
    double()
    run = CalibrationRun([InputSpec("x", SHAPE, "float32")], batches(), 6, HostMemory())
    with pytest.raises(CalibrationError, match="asked for the inputs x"):
        build(None, run)


def test_after_a_failure_nothing_more_is_read() -> None:
    drawn = []

    def stream():
        for batch in batches(3, image=np.zeros(SHAPE)):
            drawn.append(batch)
            yield batch

    run = run_of(stream())
    assert [run.get_batch(["image"]) for _ in range(3)] == [None, None, None]
    assert len(drawn) == 1


def test_interrupting_is_not_swallowed_either() -> None:
    def stream():
        raise KeyboardInterrupt
        yield

    run = run_of(stream())
    assert run.get_batch(["image"]) is None
    with pytest.raises(KeyboardInterrupt):
        run.finish()


def test_pointers_come_in_the_order_asked_for() -> None:
    specs = [InputSpec("a", (1, 2), "float32"), InputSpec("b", (1, 3), "float32")]
    batch = {"a": np.ones((1, 2), np.float32), "b": np.full((1, 3), 2, np.float32)}
    run = CalibrationRun(specs, [batch, batch], 2, HostMemory())
    first, second = run.get_batch(["b", "a"])
    assert np.frombuffer(ctypes.string_at(first, 12), np.float32).tolist() == [2, 2, 2]
    assert np.frombuffer(ctypes.string_at(second, 8), np.float32).tolist() == [1, 1]
    assert run.get_batch(["a", "b"]) == [second, first]


def test_what_tensorrt_writes_is_copied() -> None:
    run = run_of(batches())
    data = bytearray(b"TRT-101401-EntropyCalibration2\n")
    run.write_calibration_cache(memoryview(data))
    data[:] = bytes(len(data))
    assert run.written.startswith(b"TRT-101401")


class Tensor:
    """What of a PyTorch tensor is looked at."""

    def __init__(self, array: np.ndarray, *, cuda: bool = True, contiguous: bool = True) -> None:
        self.array, self.is_cuda, self._contiguous = array, cuda, contiguous
        self.shape, self.dtype = array.shape, f"torch.{array.dtype}"

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def is_contiguous(self) -> bool:
        return self._contiguous


class Interface:
    """What CuPy, Numba and PyCUDA arrays show."""

    def __init__(self, array: np.ndarray, strides: Any = None) -> None:
        self.array = array
        self.__cuda_array_interface__ = {
            "shape": array.shape, "typestr": array.dtype.str, "data": (array.ctypes.data, False), "strides": strides,
            "version": 3,
        }  # fmt: skip


class Allocation:
    """PyCUDA's DeviceAllocation: an address by int()."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __int__(self) -> int:
        return self.array.ctypes.data


def device_arrays() -> dict[str, Any]:
    array = np.arange(np.prod(SHAPE), dtype=np.float32).reshape(SHAPE)
    return {
        "torch": Tensor(array),
        "cuda array interface": Interface(array),
        "pycuda allocation": Allocation(array),
        "cuda-core buffer": SimpleNamespace(handle=Allocation(array)),
        "address": array.ctypes.data,
        "_keep": array,
    }


@pytest.mark.parametrize("kind", ["torch", "cuda array interface", "pycuda allocation", "cuda-core buffer", "address"])
def test_device_arrays_of_other_libraries_are_used_in_place(double, kind) -> None:
    double()
    held = device_arrays()
    run = run_of([{"image": held[kind]}] * 3)
    built, _ = build(None, run)
    scale = trtcache.parse(built.calibration_cache).scales["image"]
    assert scale == np.float32(held["_keep"].max() / 127)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (Tensor(np.zeros(SHAPE, np.float32), cuda=False), "Tensor"),
        (Tensor(np.zeros(SHAPE, np.float32), contiguous=False), "contiguous"),
        (Tensor(np.zeros(SHAPE, np.float16)), "float16"),
        (Interface(np.zeros(SHAPE, np.float64)), "float64"),
        (Interface(np.zeros((2, 3, 8, 4), np.float32)), r"\[2, 3, 8, 4\]"),
        (Interface(np.zeros(SHAPE, np.float32), strides=(1536, 512, 64, 8)), "contiguous"),
        (True, "bool"),
    ],
)
def test_device_arrays_that_would_be_misread_are_refused(value, reason) -> None:
    run = run_of([{"image": value}])
    assert run.get_batch(["image"]) is None
    with pytest.raises(CalibrationError, match=reason):
        run.finish()


def test_contiguous_strides_may_be_stated() -> None:
    array = np.zeros(SHAPE, np.float32)
    assert foreign_array(Interface(array, strides=array.strides)).contiguous
    assert foreign_array("text") is None
    assert foreign_array(array) is None


def test_open_lengths_calibrate_on_the_profile_of_their_own(provide) -> None:
    provided = provide(10)
    shapes = {"image": ShapeRange((1, 3, 8, 8), (4, 3, 8, 8), (8, 3, 8, 8))}
    run = run_of(batches(), memory=provided.memory)
    built, _ = build(provided, run, batch="N", shapes=shapes, calibration_shapes={"image": ShapeRange.fixed(SHAPE)})
    assert run.seen == 6
    assert built.calibration_cache


def test_open_lengths_without_a_profile_fail_with_tensorrts_reason(provide) -> None:
    provided = provide(10)
    with pytest.raises(EngineError, match=r"(?i)profile"):
        build(provided, CacheRun(cache_for(provided.version)), batch="N")


def test_layers_are_pinned_and_constraints_obeyed(provide) -> None:
    provided = provide(10)
    built, found = build(provided, CacheRun(cache_for(provided.version)), pinned={"n_out": "fp16", "nowhere": "fp16"})
    assert found == {"n_out"}
    assert built.layer_info


def test_tensors_without_scale_are_listed(double) -> None:
    double()
    entries = [(item.name, 0.02) for item in analyse(network()).activations if item.name != "b"]
    built, _ = build(None, CacheRun(trtcache.render(entries, "10.14.1").render()))
    assert built.log.missing_scales == ["b"]


def test_a_timing_cache_of_another_version_is_an_error(double) -> None:
    double()
    first, _ = build(None, CacheRun(cache_for("10.14.1")))
    again, _ = build(None, CacheRun(cache_for("10.14.1")), timing_cache=first.timing_cache)
    assert again.timing_cache == first.timing_cache
    with pytest.raises(EngineError, match="timing cache"):
        build(None, CacheRun(cache_for("10.14.1")), timing_cache=b"timing:9.0.0")


def test_an_unsupported_operator_is_named(double) -> None:
    double()
    made = network()
    made.graph.node.append(onnx.helper.make_node("Unsupported", ["out"], ["more"], "odd"))
    with pytest.raises(ModelError, match=r"odd \(Unsupported\): no importer"):
        build_implicit(
            made.SerializeToString(), "net.onnx", {}, None, CacheRun(b""), "EntropyCalibration2", {}, fp16=False
        )


def test_an_unknown_calibrator_class_is_a_usage_error(double) -> None:
    double()
    with pytest.raises(UsageError, match="LegacyCalibration"):
        make_calibrator(CacheRun(b""), "LegacyCalibration")


def test_the_double_swallows_what_a_careless_calibrator_raises(double, capsys) -> None:
    """The trap itself: without our record of failures, the build would go on after one batch."""
    module = double()

    class Careless(module.IInt8EntropyCalibrator2):
        def __init__(self) -> None:
            module.IInt8EntropyCalibrator2.__init__(self)
            self.memory, self.calls = HostMemory(), 0

        def get_batch_size(self) -> int:
            return 2

        def get_batch(self, names):
            self.calls += 1
            if self.calls > 1:
                raise ValueError("broken image")
            buffer = self.memory.allocate(4 * int(np.prod(SHAPE)))
            self.held = buffer
            return [buffer.pointer]

        def read_calibration_cache(self):
            return None

        def write_calibration_cache(self, cache) -> None:
            self.cache = bytes(cache)

    logger = type("Logger", (module.ILogger,), {"log": lambda self, severity, msg: None})()
    builder = module.Builder(logger)
    made, config = builder.create_network(), builder.create_builder_config()
    module.OnnxParser(made, logger).parse(network().SerializeToString())
    config.set_flag(module.BuilderFlag.INT8)
    config.int8_calibrator = Careless()
    assert builder.build_serialized_network(made, config) is not None
    assert "broken image" in capsys.readouterr().err
