"""Networks that are Python objects: PyTorch modules, or any function from arrays to arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import CalibError, ModelError
from calib.types.runner import Array, Feeds


class CallableRunner:
    """Runs a function or a ``torch.nn.Module`` on one batch at a time.

    A module is put into evaluation mode and run without gradients. The answer may be an array or tensor (called
    ``output``), a mapping, or a sequence (``output0``, ``output1``, …); a torchvision model's ``{"out": …, "aux": …}``
    keeps its names.

    Args:
        function: from the input arrays, in the order of the feeds, to the outputs.
        place: what to call it in messages.
        provider: ``cuda`` moves a module to the GPU.
    """

    def __init__(self, function: Callable[..., Any], place: str, provider: str = "cpu") -> None:
        self._place = place
        self._function = _module_function(function, provider) if is_module(function) else function
        self._outputs: tuple[str, ...] = ()

    @property
    def outputs(self) -> Sequence[str]:
        """Names of the outputs of the last run; empty before the first."""
        return self._outputs

    def run(self, feeds: Feeds) -> Mapping[str, Array]:
        """Run one batch.

        Raises:
            ModelError: the function fails, or answers with something that is no array.
        """
        try:
            answer = self._function(*feeds.values())
        except CalibError:
            raise
        except Exception as error:
            shapes = ", ".join(f"{list(array.shape)} {array.dtype}" for array in feeds.values())
            raise ModelError(
                self._place,
                expected=f"to run on {shapes}",
                got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
                remedy="check the factory and the preprocessing's size, layout and dtype",
            ) from error
        named = {name: self._as_array(name, value) for name, value in _named(answer)}
        self._outputs = tuple(named)
        return named

    def _as_array(self, name: str, value: Any) -> NDArray[Any]:
        if hasattr(value, "detach"):
            value = value.detach().float().cpu().numpy() if value.is_floating_point() else value.cpu().numpy()
        array = np.asarray(value)
        if array.dtype == object or array.ndim < 2:
            raise ModelError(
                self._place,
                expected=f"an array of a class map as {name}",
                got=f"{type(value).__name__}",
                remedy="let the factory return a network whose answer is an array, a tensor or a mapping of them",
            )
        return array


def is_module(function: Any) -> bool:
    """Whether something is a PyTorch module, told without importing PyTorch."""
    return any(kind.__module__.startswith("torch.nn.") and kind.__name__ == "Module" for kind in type(function).__mro__)


def _module_function(module: Any, provider: str) -> Callable[..., Any]:
    import torch

    device = torch.device("cuda" if provider == "cuda" else "cpu")
    ready = module.eval().to(device)

    def run(*arrays: NDArray[Any]) -> Any:
        with torch.inference_mode():
            return ready(*(torch.from_numpy(array).to(device) for array in arrays))

    return run


def _named(answer: Any) -> list[tuple[str, Any]]:
    if isinstance(answer, Mapping):
        return [(str(name), value) for name, value in answer.items()]
    if isinstance(answer, list | tuple):
        return [(f"output{place}", value) for place, value in enumerate(answer)]
    return [("output", answer)]
