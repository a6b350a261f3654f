"""A network in ONNX Runtime on the CPU or an NVIDIA GPU: how the runtime is loaded, set up and asked."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import numpy as np
import onnx
from numpy.typing import NDArray

from calib.errors import MissingLibraryError, ModelError, UsageError

Provider = Literal["cpu", "cuda"]
Memory = Literal["own", "shared"]
EXECUTION_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
}
PROVIDER_OPTIONS: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""TF32 rounds the inputs of convolutions to 10 bits of mantissa; ranges are measured without."""
ERRORS_ONLY = 3
FATAL_ONLY = 4
BOOL = 9
"""ONNX's number for the element type."""
BFLOAT16 = "tensor(bfloat16)"


class Session:
    """One network loaded by the runtime; :meth:`run` may be called from several threads at once.

    One thread a run: results then do not depend on the thread count, and several images run side by side, which on a
    CPU is faster than one image on several threads. Memory is kept between runs; giving it back after each costs a
    tenth of the time and more. Memory patterns are off: they take that of all inner tensors of a run at once, which
    with every activation exposed is half as much again.

    Args:
        model: the network.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        fuse_quantizers: False keeps Q/DQ out of integer kernels while all other optimizations stay.
        memory: what main memory is kept for: the session's ``own`` next run, or that of every ``shared`` session, so
            that several large networks need no more than the largest.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        UsageError: the provider is not available in the installed ONNX Runtime.
        ModelError: ONNX Runtime does not accept the network.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        place: str,
        provider: Provider,
        *,
        optimize: bool = True,
        fuse_quantizers: bool = True,
        memory: Memory = "own",
    ) -> None:
        runtime = _import_runtime()
        _check_provider(runtime, provider)
        if provider == "cuda":
            _preload_libraries(runtime)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = FATAL_ONLY
        options.enable_mem_pattern = False
        # Keeps INT8 signed, as TensorRT's is. Otherwise ONNX Runtime 1.32 makes it unsigned on x86, and from opset 21
        # on turns networks into some that it then refuses.
        options.add_session_config_entry("session.qdqisint8allowed", "1")
        if not optimize:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        if not fuse_quantizers:
            options.add_session_config_entry("session.disable_quant_qdq", "1")
        if memory == "shared":
            _share_arena(runtime)
            options.add_session_config_entry("session.use_env_allocators", "1")
        self._place = place
        self._run_options = runtime.RunOptions()
        self._run_options.log_severity_level = FATAL_ONLY
        try:
            self._session = runtime.InferenceSession(
                model.SerializeToString(),
                options,
                providers=[(name, dict(PROVIDER_OPTIONS.get(name, {}))) for name in EXECUTION_PROVIDERS[provider]],
            )
        except Exception as error:  # the runtime's exceptions share no narrower base
            raise _refused(place, error) from error
        _check_loaded(self._session, provider)
        self.types: Mapping[str, str] = {value.name: value.type for value in self._session.get_outputs()}
        """Type of each output as the runtime spells it, such as ``tensor(float)``, in the model's order."""

    def run(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> dict[str, Any]:
        """Run once.

        Args:
            arrays: inputs in NumPy's memory.
            values: further inputs in the runtime's.

        Returns:
            the outputs in the runtime's memory, by name; each is freed when the last reference to it goes.

        Raises:
            ModelError: the network fails on this input.
        """
        binding = self._session.io_binding()
        try:
            for name, array in arrays.items():
                binding.bind_cpu_input(name, array)
            for name, value in values.items():
                binding.bind_ortvalue_input(name, value)
            for name in self.types:
                binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding, self._run_options)
        except Exception as error:  # the runtime's exceptions share no narrower base
            raise _failed(self._place, arrays, error) from error
        return dict(zip(self.types, _owned_outputs(binding), strict=True))


def _owned_outputs(binding: Any) -> list[Any]:
    """Outputs of a run, independent of each other: the binding's own list would keep all while any one lives."""
    import onnxruntime

    vector = binding.get_outputs_as_ortvaluevector()
    try:
        return [onnxruntime.OrtValue(_owned(vector, place)) for place in range(len(vector))]
    except RuntimeError:  # a kind of value that DLPack has no word for
        return list(binding.get_outputs())


def _owned(vector: Any, place: int) -> Any:
    make = type(vector[place]).from_dlpack
    try:
        return make(vector.dlpack_at(place))
    except TypeError:  # older runtimes have to be told which tensors are bool
        return make(vector.dlpack_at(place), vector.element_type_at(place) == BOOL)


def as_array(value: Any) -> NDArray[Any]:
    """View a value of the runtime as an array, while the value lives; bfloat16, which NumPy lacks, is copied."""
    if value.data_type() != BFLOAT16:
        array: NDArray[Any] = value.numpy()
        return array
    shape = value.shape()
    size = math.prod(shape)
    bits = (ctypes.c_uint16 * size).from_address(value.data_ptr()) if size else ()
    return (np.array(bits, np.uint32) << 16).view(np.float32).reshape(shape)


@functools.cache
def _share_arena(runtime: Any) -> None:
    """Register the arena that sessions may share; once a process, for a second one would replace it.

    What it takes first it never gives back: something small.
    """
    where = runtime.OrtMemoryInfo("Cpu", runtime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, runtime.OrtMemType.DEFAULT)
    runtime.create_and_register_allocator(where, runtime.OrtArenaCfg({}))
    _smallest_session(runtime).run(None, {"x": np.zeros(1, np.float32)})


@contextlib.contextmanager
def shared_memory_released() -> Iterator[None]:
    """Release the memory that sessions share when a piece of work ends; a decorator, too."""
    try:
        yield
    finally:
        release_shared_memory()


def release_shared_memory() -> None:
    """Give the memory that sessions share back to the system; those still loaded take it again when they run.

    An arena gives back what is unused at the end of a run. The output of this one lies elsewhere.
    """
    if not _share_arena.cache_info().currsize:
        return
    runtime = _import_runtime()
    options = runtime.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session = _smallest_session(runtime)
    binding, values = session.io_binding(), np.zeros((2, 1), np.float32)
    binding.bind_cpu_input("x", values[0])
    binding.bind_ortvalue_output("y", runtime.OrtValue.ortvalue_from_numpy(values[1]))
    session.run_with_iobinding(binding, options)


def _smallest_session(runtime: Any) -> Any:
    """A session on the shared arena that does nothing."""
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = FATAL_ONLY
    options.add_session_config_entry("session.use_env_allocators", "1")
    return runtime.InferenceSession(_smallest_network(), options, providers=["CPUExecutionProvider"])


def _smallest_network() -> bytes:
    """A network that hands on one number."""
    tensor = onnx.helper.make_tensor_value_info
    x, y = (tensor(name, onnx.TensorProto.FLOAT, [1]) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "nothing", [x], [y])
    opset = onnx.helper.make_opsetid("", 13)
    return bytes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def require_provider(provider: Provider) -> None:
    """Check that the installed ONNX Runtime can run networks there at all.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        UsageError: it lacks the provider.
    """
    _check_provider(_import_runtime(), provider)


def _import_runtime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingLibraryError(
            "onnxruntime",
            expected="ONNX Runtime to run the network",
            got=str(error),
            remedy="pip install 'calib-workbench[cpu]', or [gpu] for NVIDIA GPUs",
        ) from error
    return onnxruntime


def _check_provider(runtime: Any, provider: str) -> None:
    wanted = EXECUTION_PROVIDERS[provider][0]
    if wanted not in runtime.get_available_providers():
        raise UsageError(
            f"--provider {provider}",
            expected=f"an ONNX Runtime build with {wanted}",
            got=f"one with {', '.join(runtime.get_available_providers())}",
            remedy="pip uninstall onnxruntime, then pip install 'calib-workbench[gpu]'; `calib doctor` shows more",
        )


def _preload_libraries(runtime: Any) -> None:
    """Load CUDA and cuDNN from Python packages (nvidia-*, torch) where the system has none."""
    with contextlib.suppress(AttributeError, OSError):  # older runtimes have no such function
        runtime.preload_dlls()


def _check_loaded(session: Any, provider: str) -> None:
    """A provider that fails to load its libraries is dropped by the runtime without an error."""
    if EXECUTION_PROVIDERS[provider][0] not in session.get_providers():
        raise UsageError(
            f"--provider {provider}",
            expected="ONNX Runtime to load it",
            got="a session on " + ", ".join(session.get_providers()),
            remedy="install the CUDA and cuDNN versions this ONNX Runtime was built for; `calib doctor` shows more",
        )


def _refused(place: str, error: Exception) -> ModelError:
    remedy = "check it with onnx.checker; a newer onnxruntime may know its operators"
    if "NOT_IMPLEMENTED" in str(error):
        remedy = "export it in float32: the runtime has this operator, but not for this element type or opset"
    elif "not a registered function/op" in str(error):
        remedy = "export it without the custom operator, or as standard operators; calib loads no operator libraries"
    return ModelError(place, expected="a network that ONNX Runtime can load", got=_one_line(error), remedy=remedy)


def _failed(place: str, feeds: Mapping[str, NDArray[Any]], error: Exception) -> ModelError:
    shapes = ", ".join(f"{name} {list(array.shape)} {array.dtype}" for name, array in feeds.items())
    return ModelError(
        place,
        expected=f"to run on {shapes}",
        got=_one_line(error),
        remedy="check the size, layout and dtype stated under `preprocess`",
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
