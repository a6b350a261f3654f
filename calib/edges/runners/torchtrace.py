"""The trace of a PyTorch module: every operator that one run calls, with its tensors, under ONNX's names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.edges.runners.atennames import array, translate
from calib.errors import ModelError
from calib.stages.diagnose.trace import Step, Trace

VIEWS = frozenset({"detach", "alias", "clone", "contiguous", "_to_copy", "dropout", "lift_fresh", "expand_copy"})
"""Operators that leave the values as they are."""


def trace_module(module: Any, feeds: Mapping[str, NDArray[Any]], place: str) -> Trace:
    """Run a module once on the CPU and write down every operator.

    Args:
        module: a ``torch.nn.Module``; put into evaluation mode.
        feeds: one batch, in the order of the module's arguments.
        place: what to call it.

    Raises:
        ModelError: it fails on this input.
    """
    import torch

    recorder = _Recorder()
    ready = module.eval().cpu()
    handles = recorder.watch(ready)
    tensors = {name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in feeds.items()}
    for name, tensor in tensors.items():
        recorder.name(tensor, name)
    try:
        with torch.no_grad(), _mode(recorder):
            answer = ready(*tensors.values())
    except Exception as error:
        raise ModelError(
            place, expected="to run on " + ", ".join(f"{list(a.shape)} {a.dtype}" for a in feeds.values()),
            got=f"{type(error).__name__}: {' '.join(str(error).split())[:300]}",
            remedy="check the factory and the preprocessing's size, layout and dtype",
        ) from error  # fmt: skip
    finally:
        for handle in handles:
            handle.remove()
    outputs = tuple(recorder.names[id(tensor)] for tensor in _tensors(answer) if id(tensor) in recorder.names)
    values = {**feeds, **recorder.values}
    return Trace(place, tuple(recorder.steps), tuple(feeds), outputs, values)


def _tensors(answer: Any) -> list[Any]:
    import torch

    if isinstance(answer, torch.Tensor):
        return [answer]
    if isinstance(answer, Mapping):
        return [tensor for item in answer.values() for tensor in _tensors(item)]
    if isinstance(answer, list | tuple):
        return [tensor for item in answer for tensor in _tensors(item)]
    return []


class _Recorder:
    """Names tensors by identity; keeps them alive, so that no identity is given twice."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.names: dict[int, str] = {}
        self.values: dict[str, NDArray[Any]] = {}
        self._alive: list[Any] = []
        self._modules: list[str] = []

    def name(self, tensor: Any, name: str) -> None:
        """Give a tensor its name, a new one where an operator wrote into it."""
        self.names[id(tensor)] = name
        self._alive.append(tensor)

    def watch(self, module: Any) -> list[Any]:
        """Follow which module is running."""
        handles = []
        for name, part in module.named_modules():
            handles.append(part.register_forward_pre_hook(self._entering(name)))
            handles.append(part.register_forward_hook(self._leaving, always_call=True))
        return handles

    def _entering(self, name: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self._modules.append(name)

        return enter

    def _leaving(self, *_: Any) -> None:
        if self._modules:
            self._modules.pop()

    def record(self, function: Any, arguments: Sequence[Any], options: Mapping[str, Any], answer: Any) -> None:
        """Write one call down."""
        operator = function._schema.name.split("::")[-1].rstrip("_")
        results = [tensor for tensor in _tensors(answer) if tensor.numel()]
        sources = [tensor for tensor in _flat(arguments) if id(tensor) in self.names]
        if not results or not sources:
            return
        if operator in VIEWS or (operator in {"view", "expand"} and results[0].shape == sources[0].shape):
            self.name(results[0], self.names[id(sources[0])])
            return
        self._step(operator, function, arguments, options, results, sources)

    def _step(
        self,
        operator: str,
        function: Any,
        arguments: Sequence[Any],
        options: Mapping[str, Any],
        results: Sequence[Any],
        sources: Sequence[Any],
    ) -> None:
        place = len(self.steps)
        module = next((name for name in reversed(self._modules) if name), "")
        data = tuple(self.names[id(tensor)] for tensor in sources)
        formal = {item.name: value for item, value in zip(function._schema.arguments, arguments, strict=False)}
        kind, parameters, weights = translate(operator, {**formal, **options}, self.names, results)
        label = f"{module}.{operator}" if module else operator
        outputs = []
        for slot, tensor in enumerate(results):
            name = f"{label}#{place}" + (f":{slot}" if slot else "")
            self.name(tensor, name)
            outputs.append(name)
            if tensor.device.type == "cpu" and not tensor.is_sparse:
                self.values[name] = array(tensor)
        self.steps.append(Step(place, label, kind, data, tuple(outputs), parameters, weights))


def _flat(arguments: Sequence[Any]) -> list[Any]:
    return [tensor for item in arguments for tensor in _tensors(item)]


def _mode(recorder: _Recorder) -> Any:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Recording(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            answer = func(*args, **(kwargs or {}))
            recorder.record(func, args, kwargs or {}, answer)
            return answer

    return Recording()
