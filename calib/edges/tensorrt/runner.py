"""Running an engine: the Runner that evaluation uses, and the times of its layers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from calib.core.graph import GraphTensor, Network
from calib.edges.tensorrt.buffers import CudaMemory, DeviceBuffer, DeviceMemory
from calib.edges.tensorrt.building import EngineError, load_engine
from calib.edges.tensorrt.library import Log, make_logger
from calib.errors import ModelError
from calib.types.runner import Array, Feeds

if TYPE_CHECKING:
    import tensorrt as trt

NUMPY_TYPES = {
    "FLOAT": "float32", "HALF": "float16", "INT8": "int8", "INT32": "int32", "INT64": "int64", "BOOL": "bool",
    "UINT8": "uint8",
}  # fmt: skip
WARM_UP = 3
ITERATIONS = 10


class EngineRunner:
    """An engine loaded by TensorRT; one run at a time.

    Args:
        plan: the serialized engine.
        place: what to call it in messages.
        memory: device memory; None for the first GPU.

    Raises:
        MissingLibraryError: cuda-core is not installed.
        EngineError: the engine is of another TensorRT or GPU, or damaged.
    """

    def __init__(self, plan: bytes, place: str, memory: DeviceMemory | None = None) -> None:
        import tensorrt as trt

        self._memory = memory or CudaMemory()
        self._place = place
        self._log = Log()
        self._logger = make_logger(self._log)
        self._engine = load_engine(plan, place, self._logger, self._log)
        context = self._engine.create_execution_context()
        if context is None:
            raise EngineError(place, expected="room to run it", got=self._log.why(), remedy="free memory on the GPU")
        self._context: trt.IExecutionContext = context
        self._buffers: dict[str, DeviceBuffer] = {}
        self._lock = Lock()
        names = [self._engine.get_tensor_name(index) for index in range(self._engine.num_io_tensors)]
        modes = {name: self._engine.get_tensor_mode(name) for name in names}
        self._inputs = tuple(self._describe(name) for name in names if modes[name] == trt.TensorIOMode.INPUT)
        self._outputs = tuple(self._describe(name) for name in names if modes[name] == trt.TensorIOMode.OUTPUT)

    @property
    def inputs(self) -> Sequence[GraphTensor]:
        """Inputs as the engine declares them, open lengths as None."""
        return self._inputs

    @property
    def output_tensors(self) -> Sequence[GraphTensor]:
        """Outputs likewise."""
        return self._outputs

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs."""
        return tuple(item.name for item in self._outputs)

    @property
    def float_outputs(self) -> Sequence[str]:
        """Outputs of a floating-point type."""
        return tuple(item.name for item in self._outputs if (item.elem_type or "").startswith("float"))

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Run one batch.

        Raises:
            ModelError: an input is missing, or its shape lies outside the engine's profile.
            EngineError: the engine fails.
        """
        with self._lock:
            for item in self._inputs:
                self._feed(item, feeds)
            results = {name: self._result(name) for name in self.outputs}
            if not self._context.execute_async_v3(self._memory.stream):
                raise self._failed("to run")
            self._memory.synchronize()
            for name, array in results.items():
                self._memory.download(self._buffers[name], array)
            return results

    def profile(self, feeds: Feeds, iterations: int = ITERATIONS) -> str:
        """Time every layer; JSON as ``trtexec --exportProfile`` writes it.

        Args:
            feeds: what to run on; the times do not depend on the values.
            iterations: runs that are averaged, after a few to warm up.
        """
        import tensorrt as trt

        times: dict[str, float] = {}

        class Collecting(trt.IProfiler):
            def __init__(self) -> None:
                trt.IProfiler.__init__(self)

            def report_layer_time(self, layer_name: str, ms: float) -> None:
                times[layer_name] = times.get(layer_name, 0.0) + ms

        profiler = Collecting()
        with self._profiled_by(profiler):
            for _ in range(WARM_UP):
                self.run(feeds)
            times.clear()
            for _ in range(iterations):
                self.run(feeds)
        return profile_json(times, iterations)

    @contextmanager
    def _profiled_by(self, profiler: trt.IProfiler) -> Iterator[None]:
        """Attach a profiler; the context holds on to it, so it lives as long."""
        self._profiler = profiler
        self._context.profiler = profiler
        yield

    def _describe(self, name: str) -> GraphTensor:
        kind = NUMPY_TYPES.get(self._engine.get_tensor_dtype(name).name)
        shape = tuple(None if length < 0 else int(length) for length in self._engine.get_tensor_shape(name))
        return GraphTensor(name, kind, shape)

    def _feed(self, item: GraphTensor, feeds: Feeds) -> None:
        array = feeds.get(item.name)
        if array is None:
            raise ModelError(
                f"{self._place}, input {item.name!r}", expected="an array", got="none", remedy="feed every input"
            )
        contiguous = np.ascontiguousarray(array, item.elem_type)
        if not self._context.set_input_shape(item.name, contiguous.shape):
            raise ModelError(
                f"{self._place}, input {item.name!r}",
                expected=f"a shape the engine was built for ({self._profile_text(item.name)})",
                got=str(list(contiguous.shape)),
                remedy="build the engine with --shapes that cover it",
            )
        self._memory.upload(contiguous, self._buffer(item.name, contiguous.nbytes))

    def _profile_text(self, name: str) -> str:
        low, _, high = (list(shape) for shape in self._engine.get_tensor_profile_shape(name, 0))
        return f"{low} to {high}"

    def _result(self, name: str) -> NDArray[Any]:
        shape = tuple(int(length) for length in self._context.get_tensor_shape(name))
        kind = next(item.elem_type for item in self._outputs if item.name == name)
        if kind is None or any(length < 0 for length in shape):
            raise EngineError(
                f"{self._place}, output {name!r}",
                expected="a type and shape known before the run",
                got=f"{self._engine.get_tensor_dtype(name).name}, {list(shape)}",
                remedy="export the network without outputs of data-dependent shape; cast bfloat16 outputs to float",
            )
        array = np.empty(shape, kind)
        self._buffer(name, array.nbytes)
        return array

    def _buffer(self, name: str, size: int) -> DeviceBuffer:
        held = self._buffers.get(name)
        if held is None or held.size < size:
            held = self._buffers[name] = self._memory.allocate(size)
        if not self._context.set_tensor_address(name, held.pointer):
            raise self._failed(f"an address for {name!r}")
        return held

    def _failed(self, expected: str) -> EngineError:
        return EngineError(
            self._place, expected=expected, got=self._log.why(), remedy="see the reason; `calib doctor` checks the GPU"
        )


def read_engine(path: Path) -> bytes:
    """Read an engine file.

    Raises:
        ModelError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(
            str(path), expected="a readable engine", got=str(error.strerror).lower(), remedy="check the path"
        ) from error


def engine_network(runner: EngineRunner) -> Network:
    """An engine's inputs and outputs as a network without nodes."""
    return Network(
        inputs=tuple(runner.inputs),
        outputs=tuple(runner.output_tensors),
        activations=(),
        constants=frozenset(),
        not_covered=(),
        nodes=(),
        order=(),
        producers={},
        consumers={},
        elem_types={},
        shapes={},
        opsets={},
        values={},
        names=frozenset(),
    )


def profile_json(times: Mapping[str, float], iterations: int) -> str:
    """Layer times in the form of ``trtexec --exportProfile``.

    Args:
        times: sum of milliseconds by layer, in execution order.
        iterations: number of runs they are the sum of.
    """
    total = sum(times.values())
    entries: list[dict[str, Any]] = [{"count": iterations}]
    entries += [
        {
            "name": name,
            "timeMs": spent,
            "averageMs": spent / iterations,
            "percentage": 100 * spent / total if total else 0.0,
        }
        for name, spent in times.items()
    ]
    return json.dumps(entries, indent=1) + "\n"
