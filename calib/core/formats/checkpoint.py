"""State dicts in a checkpoint: where they hide, which one counts, and what its quantizers' settings are.

Trainers nest them (``{"epoch": 9, "model": …, "ema": …}``), wrap names (``module.``), pickle whole networks, or
keep one a process. ModelOpt keeps the settings of its quantizers beside them, in ``modelopt_state``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats.torchpickle import Inert, Tensor

DEPTH = 4
"""How deep a checkpoint may hide its state dict (``{"model": {"state_dict": …}}``)."""
MODULE_DEPTH = 64
AVERAGED = frozenset({"ema", "model_ema", "ema_model", "ema_state_dict", "state_dict_ema", "model_ema_state_dict"})
"""Keys of the averaged weights: those that trainers evaluate and release."""
RANGE_ENDINGS = ("._amax", ".clip.clip_value_max")
METADATA = "modelopt_state"

State = Mapping[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """The state dict of a checkpoint that counts.

    Attributes:
        state: tensors by key, unread.
        path: where it was, ``model.state_dict``; empty at the top.
        others: paths of further state dicts with ranges.
        settings: attributes of each quantizer, where the checkpoint holds them.
    """

    state: Mapping[str, Tensor]
    path: str
    others: Mapping[str, Mapping[str, Tensor]]
    settings: Mapping[str, Mapping[str, Any]]


def find_state(content: Any) -> Checkpoint | None:
    """Find the state dict with ranges: the averaged weights' if there are any, else the one with most, else the first.

    Args:
        content: as :func:`calib.core.formats.torchcontainer.read_checkpoint` answers it.
    """
    found = {path: state for path, state in _candidates(content, "", DEPTH) if _ranges(state)}
    if not found:
        return None
    chosen = max(found, key=lambda path: (_averaged(path), _ranges(found[path])))
    others = {path: state for path, state in found.items() if path != chosen}
    return Checkpoint(found[chosen], chosen, others, _settings(content, DEPTH))


def any_state(content: Any) -> Mapping[str, Tensor]:
    """Find the largest state dict, ranges or not: for a message that says what the file does hold."""
    return max((state for _, state in _candidates(content, "", DEPTH)), key=len, default={})


def list_states(content: Any) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """List every state dict of a checkpoint with its path: dictionaries of tensors, and networks pickled whole."""
    yield from _candidates(content, "", DEPTH)


def _ranges(state: State) -> int:
    return sum(key.endswith(RANGE_ENDINGS) or key == "_amax" for key in state)


def _averaged(path: str) -> bool:
    return any(part.lower() in AVERAGED for part in path.split("."))


def _candidates(content: Any, path: str, depth: int) -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    """List the state dicts of a checkpoint: dictionaries of tensors, and networks pickled whole."""
    if _is_module(content):
        yield path, dict(_tensors_of(content, "", MODULE_DEPTH))
        return
    own = {key: value for key, value in _entries(content) if isinstance(value, Tensor)}
    if own:
        yield path, own
    for key, value in _entries(content) if depth else ():
        if key != METADATA and isinstance(value, Mapping | list | tuple):
            yield from _candidates(value, f"{path}.{key}" if path else key, depth - 1)


def _entries(content: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(content, Mapping):
        yield from ((key, value) for key, value in content.items() if isinstance(key, str))
    if isinstance(content, list | tuple):
        yield from ((str(index), value) for index, value in enumerate(content))
    if isinstance(content, Inert):
        yield from _entries(content.state)


def _is_module(content: Any) -> bool:
    """Whether an object was a network: of PyTorch, or of TorchScript."""
    if not isinstance(content, Inert) or not isinstance(content.state, Mapping):
        return False
    return "_modules" in content.state or content.kind.startswith("__torch__.")


def _members(module: Inert) -> Iterator[tuple[str, Any]]:
    """List a pickled module's tensors and modules by name."""
    state = module.state if isinstance(module.state, Mapping) else {}
    groups = [state.get(group) for group in ("_parameters", "_buffers", "_modules")]
    held = [group for group in groups if isinstance(group, Mapping)] or [state]
    yield from ((str(name), value) for group in held for name, value in group.items())


def _tensors_of(module: Inert, prefix: str, depth: int) -> Iterator[tuple[str, Tensor]]:
    """List the parameters and buffers of a pickled module, as its ``state_dict`` would name them."""
    for name, value in _members(module):
        if isinstance(value, Tensor):
            yield f"{prefix}{name}", value
        elif _is_module(value) and depth:
            yield from _tensors_of(value, f"{prefix}{name}.", depth - 1)


def _settings(content: Any, depth: int) -> dict[str, Mapping[str, Any]]:
    """Gather the quantizers' attributes: ModelOpt's metadata (of several modes the last holds), or pickled modules'."""
    if _is_module(content):
        return dict(_module_settings(content, "", MODULE_DEPTH))
    answer: dict[str, Mapping[str, Any]] = {}
    for key, value in _entries(content):
        if key == METADATA and isinstance(value, Mapping):
            answer.update(_modes(value))
        elif depth and isinstance(value, Mapping):
            answer.update(_settings(value, depth - 1))
    return answer


def _module_settings(module: Inert, prefix: str, depth: int) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if "_num_bits" in module.state:
        yield prefix.removesuffix("."), module.state
    for name, value in _members(module) if depth else ():
        if _is_module(value):
            yield from _module_settings(value, f"{prefix}{name}.", depth - 1)


def _modes(state: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    answer: dict[str, Mapping[str, Any]] = {}
    modes = state.get("modelopt_state_dict")
    for mode in modes if isinstance(modes, list | tuple) else ():
        for _, part in _entries(mode):
            metadata = part.get("metadata") if isinstance(part, Mapping) else None
            quantizers = metadata.get("quantizer_state") if isinstance(metadata, Mapping) else None
            answer.update((name, value) for name, value in _entries(quantizers) if isinstance(value, Mapping))
    return answer


def arrays_of(state: Mapping[str, Tensor], wanted: Any) -> dict[str, NDArray[Any]]:
    """Read the tensors whose keys are wanted; half precision comes as float32.

    Raises:
        ValueError: one that reaches out of its storage.
    """
    read = {key: value.array() for key, value in state.items() if wanted(key)}
    return {key: value.astype(np.float32) if value.dtype == np.float16 else value for key, value in read.items()}
