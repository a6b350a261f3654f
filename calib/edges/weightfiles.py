"""Weights from files into PyTorch modules. Nothing in a file is executed: what is no tensor stays inert."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats.arrays import read_safetensors
from calib.core.formats.checkpoint import AVERAGED, list_states
from calib.core.formats.quantizers import WRAPPERS
from calib.core.formats.torchcontainer import read_checkpoint
from calib.errors import FormatError, MissingLibraryError, ModelError
from calib.types.gate import few

DEPTH = 3
"""How many wrappers' prefixes are looked through."""
COUNTER = "num_batches_tracked"
"""Ending of what batch normalisation counts; inference does not read it, and old checkpoints lack it."""


@dataclass(frozen=True)
class Found:
    """One way to read weights out of a file.

    Attributes:
        path: where in the file the state dict lies, ``model.state_dict``; empty at the top.
        prefix: what was taken off the names, ``model.``.
        tensors: unread, by the name without it.
        aside: names without that prefix, which are not the network's.
    """

    path: str
    prefix: str
    tensors: Mapping[str, Any]
    aside: tuple[str, ...] = ()

    @property
    def averaged(self) -> bool:
        """Whether these are a moving average, which trainers evaluate and release."""
        return any(part.lower() in AVERAGED for part in self.path.split("."))

    def lacks(self, wanted: Mapping[str, Any]) -> list[str]:
        """Name the tensors of a network that are not there."""
        return sorted(name for name in wanted if name not in self.tensors and not name.endswith(COUNTER))

    def exceeds(self, wanted: Mapping[str, Any]) -> list[str]:
        """Name the tensors that a network has not."""
        return sorted(set(self.tensors) - set(wanted))


def load_weights(module: Any, path: Path) -> tuple[str, ...]:
    """Load a file of weights into a module by name, wherever in it they lie and whatever wrapper's prefix they carry.

    Of several state dicts that fit, the averaged weights' is taken, else the first.

    Args:
        module: a ``torch.nn.Module`` on the CPU; changed.
        path: ``.pt``, ``.pth`` (any form that ``torch.save`` writes, whole networks included) or ``.safetensors``.

    Returns:
        what people should know of the choice.

    Raises:
        FormatError: the file cannot be read, or holds no tensors.
        ModelError: names are missing or left over, shapes differ, or a number is not finite.
        MissingLibraryError: PyTorch is not installed.
    """
    torch = _require_torch(path)
    if not hasattr(module, "load_state_dict"):
        raise ModelError(
            str(path), expected="a PyTorch module to load weights into", got=type(module).__name__,
            remedy="name a factory of a torch.nn.Module, or leave the weights out",
        )  # fmt: skip
    wanted = module.state_dict()
    states = read_states(path)
    found = choose(states, wanted)
    _refuse_others(found, wanted, str(path))
    arrays = {name: _array(tensor, path) for name, tensor in found.tensors.items()}
    _refuse_values(arrays, wanted, str(path))
    module.load_state_dict({**wanted, **{name: torch.from_numpy(array) for name, array in arrays.items()}})
    return tuple(_notes(found, states, wanted, path))


def _require_torch(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            str(path), expected="PyTorch", got=str(error), remedy="pip install 'calib-workbench[qat]'"
        ) from error
    return torch


def read_states(path: Path) -> dict[str, Mapping[str, Any]]:
    """Find the state dicts of a file, by where they lie in it; their tensors are not read yet.

    Raises:
        FormatError: the file cannot be read, or holds no tensors.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, (error.strerror or type(error).__name__).lower()) from error
    if not data:
        raise _unreadable(path, "an empty file")
    try:
        if _is_safetensors(data):
            found: dict[str, Mapping[str, Any]] = {"": read_safetensors(data, str(path), lambda name: True)}
        else:
            found = dict(list_states(read_checkpoint(data, str(path))))
    except FormatError as error:
        raise _unreadable(path, error.got) from error
    if not found:
        raise _unreadable(path, "no tensors in it")
    return found


def _is_safetensors(data: bytes) -> bool:
    return data[8:9] == b"{" and int.from_bytes(data[:8], "little") < len(data)


def choose(states: Mapping[str, Mapping[str, Any]], wanted: Mapping[str, Any]) -> Found:
    """Choose the state dict, and the spelling of its names, that fits a network best.

    Args:
        states: tensors by name, by where they lie.
        wanted: the network's own.
    """
    least = len(wanted) // 2
    spelled = [found for path, state in states.items() for found in spellings(path, state, least)]

    def fitness(found: Found) -> tuple[bool, bool, int, int]:
        whole = not found.lacks(wanted) and not found.exceeds(wanted)
        common = len(set(found.tensors) & set(wanted))
        return whole, whole and found.averaged, common, -len(found.exceeds(wanted))

    return max(spelled, key=fitness)


def spellings(path: str, state: Mapping[str, Any], least: int = 1) -> Iterator[Found]:
    """The names as they are, without the marks of wrappers, and without each prefix that many of them share.

    Args:
        path: where in the file they lie.
        state: tensors by name.
        least: how many names a prefix must have.
    """
    yield Found(path, "", state)
    bare = {_unwrapped(name): tensor for name, tensor in state.items()}
    if len(bare) == len(state):
        yield Found(path, "", bare)
        yield from _inside(path, "", bare, max(1, least), DEPTH)


def _inside(path: str, prefix: str, state: Mapping[str, Any], least: int, depth: int) -> Iterator[Found]:
    parts: dict[str, dict[str, Any]] = {}
    for name, tensor in state.items():
        first, _, rest = name.partition(".")
        if rest:
            parts.setdefault(first, {})[rest] = tensor
    for first, inner in parts.items():
        if len(inner) >= least:
            aside = tuple(name for name in state if not name.startswith(f"{first}."))
            yield Found(path, f"{prefix}{first}.", inner, aside)
            if depth > 1:
                yield from _inside(path, f"{prefix}{first}.", inner, least, depth - 1)


def _unwrapped(name: str) -> str:
    """Take out what ``torch.compile``, FSDP and checkpointing of activations put between names."""
    return ".".join(part for part in name.split(".") if part not in WRAPPERS)


def _refuse_others(found: Found, wanted: Mapping[str, Any], place: str) -> None:
    """Refuse weights of another network: names that are missing or left over, other shapes."""
    parts = [
        f"{len(names)} {words} ({few(names, 3)})"
        for names, words in ((found.lacks(wanted), "missing"), (found.exceeds(wanted), "not in the network"))
        if names
    ]
    if parts:
        raise ModelError(
            place, expected=f"the {len(wanted)} tensors of the network", got=", ".join(parts),
            remedy="check that the factory makes the network that these weights were trained in",
        )  # fmt: skip
    for name, tensor in found.tensors.items():
        if tuple(tensor.shape) != tuple(wanted[name].shape):
            raise ModelError(
                place,
                expected=f"{name} of shape {tuple(wanted[name].shape)}",
                got=str(tuple(tensor.shape)),
                remedy="check the factory's arguments, such as the number of classes",
            )


def _refuse_values(arrays: Mapping[str, NDArray[Any]], wanted: Mapping[str, Any], place: str) -> None:
    """Refuse numbers of another kind, and such as are not finite, which training could only spread."""
    for name, array in arrays.items():
        if wanted[name].is_floating_point() and array.dtype.kind != "f":
            raise ModelError(
                place, expected=f"floating-point numbers in {name}", got=str(array.dtype),
                remedy="pass the weights of the float network; quantized ones are no start",
            )  # fmt: skip
    broken = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
    if broken:
        raise ModelError(
            place, expected="finite numbers", got=f"NaN or infinity in {few(broken, 3)}",
            remedy="take an earlier checkpoint: the training that wrote this one diverged",
        )  # fmt: skip


def _array(tensor: Any, path: Path) -> NDArray[Any]:
    """Read a tensor's numbers; they may be written to."""
    try:
        array = tensor if isinstance(tensor, np.ndarray) else tensor.array()
    except Exception as error:
        raise _unreadable(path, f"a damaged file: {' '.join(str(error).split())[:200]}") from error
    return np.array(array)


def _notes(found: Found, states: Mapping[str, Any], wanted: Mapping[str, Any], path: Path) -> Iterator[str]:
    """Say which of several state dicts was taken, and what was left out of it."""
    rivals = [
        other
        for other, state in states.items()
        if other != found.path and any(not item.lacks(wanted) for item in spellings(other, state, len(wanted) // 2))
    ]
    if rivals:
        why = "the averaged weights" if found.averaged else "the first that fits"
        named = ", ".join(other or "the top" for other in rivals)
        yield f"{path}: weights of {found.path or 'the top'} are taken, {why}; {named} would fit as well"
    if found.aside:
        yield f"{path}: weights of {found.prefix}* are taken; left aside: {few(found.aside, 3)}"


def _unreadable(path: Path, got: str) -> FormatError:
    return FormatError(
        str(path),
        expected="weights: a state dict saved by torch.save, or a safetensors file",
        got=got,
        remedy="save them with torch.save(network.state_dict(), PATH)",
    )
