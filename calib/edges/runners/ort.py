"""ONNX Runtime on the CPU or an NVIDIA GPU."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import onnx
from numpy.typing import NDArray

from calib.errors import MissingLibraryError, ModelError, UsageError
from calib.types.runner import Array, Feeds

Provider = Literal["cpu", "cuda"]
EXECUTION_PROVIDERS: Mapping[str, tuple[str, ...]] = {
    "cpu": ("CPUExecutionProvider",),
    "cuda": ("CUDAExecutionProvider", "CPUExecutionProvider"),
}
PROVIDER_OPTIONS: Mapping[str, Mapping[str, str]] = {"CUDAExecutionProvider": {"use_tf32": "0"}}
"""TF32 rounds the inputs of convolutions to 10 bits of mantissa; ranges are measured without."""
ERRORS_ONLY = 3
FATAL_ONLY = 4


class OrtRunner:
    """A network in an ONNX Runtime session.

    One thread a run: results then do not depend on the thread count, and several images run side by side, which on a
    CPU is faster than one image on several threads.

    Args:
        model: the network.
        place: what to call it in messages.
        provider: where it runs.
        optimize: False turns every graph optimization off, so that Q/DQ is computed literally.
        keep_memory: False gives main memory back after each run. Kept memory grows with every session, and among
            several large networks costs gigabytes while saving no time.

    Raises:
        MissingLibraryError: ONNX Runtime is not installed.
        UsageError: the provider is not available in the installed ONNX Runtime.
        ModelError: ONNX Runtime does not accept the network.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        place: str,
        provider: Provider = "cpu",
        *,
        optimize: bool = True,
        keep_memory: bool = True,
    ) -> None:
        runtime = _import_runtime()
        _check_provider(runtime, provider)
        if provider == "cuda":
            _preload_libraries(runtime)
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = FATAL_ONLY
        options.enable_cpu_mem_arena = keep_memory
        if not optimize:
            options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._place = place
        self._provider = provider
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
        self._types = {value.name: value.type for value in self._session.get_outputs()}

    @property
    def outputs(self) -> Sequence[str]:
        """Output names in the model's order."""
        return tuple(self._types)

    @property
    def float_outputs(self) -> Sequence[str]:
        """Outputs of a floating-point type."""
        return tuple(name for name, kind in self._types.items() if kind in FLOAT_TENSORS)

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Run one batch; outputs stay in the runtime's memory while the mapping lives.

        Raises:
            ModelError: the network fails on this input.
        """
        binding = self._session.io_binding()
        try:
            for name, array in feeds.items():
                binding.bind_cpu_input(name, array)
            for name in self._types:
                binding.bind_output(name, "cpu")
            self._session.run_with_iobinding(binding, self._run_options)
        except Exception as error:  # the runtime's exceptions share no narrower base
            raise _failed(self._place, feeds, error) from error
        return dict(zip(self._types, map(_as_array, binding.get_outputs()), strict=True))


FLOAT_TENSORS = frozenset({"tensor(float)", "tensor(float16)", "tensor(double)", "tensor(bfloat16)"})


def _as_array(value: Any) -> NDArray[Any]:
    array: NDArray[Any] = value.numpy()
    return array


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
    return ModelError(
        place,
        expected="a network that ONNX Runtime can load",
        got=_one_line(error),
        remedy="check it with onnx.checker; a newer onnxruntime may know its operators",
    )


def _failed(place: str, feeds: Feeds, error: Exception) -> ModelError:
    shapes = ", ".join(f"{name} {list(array.shape)} {array.dtype}" for name, array in feeds.items())
    return ModelError(
        place,
        expected=f"to run on {shapes}",
        got=_one_line(error),
        remedy="check the size, layout and dtype stated under `preprocess`",
    )


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:500]
