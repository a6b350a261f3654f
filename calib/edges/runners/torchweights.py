"""A checkpoint into a PyTorch module."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from calib.errors import MissingLibraryError, ModelError

WRAPPERS = ("state_dict", "model_state_dict", "model", "net", "weights")
"""Keys under which checkpoints keep the state dict."""


def load_weights(module: Any, path: Path) -> None:
    """Load a state dict, wrapped as training scripts do or not, into a module.

    Raises:
        MissingLibraryError: PyTorch is not installed.
        ModelError: the file is no checkpoint, or one of another network.
    """
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            str(path), expected="PyTorch", got=str(error), remedy="pip install 'calib-workbench[qat]'"
        ) from error
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            str(path), expected="a PyTorch checkpoint", got=_first_line(error),
            remedy="save it with torch.save(model.state_dict(), …)",
        ) from error  # fmt: skip
    state = _state_of(found)
    if state is None or not hasattr(module, "load_state_dict"):
        raise ModelError(
            str(path), expected="a state dict and a module to load it into", got=type(found).__name__,
            remedy="name the weights of a PyTorch module",
        )  # fmt: skip
    try:
        module.load_state_dict({name.removeprefix("module."): tensor for name, tensor in state.items()})
    except RuntimeError as error:
        raise ModelError(
            str(path), expected="weights of this network", got=_first_line(error),
            remedy="compare checkpoint and factory: names and shapes must be the same",
        ) from error  # fmt: skip


def _state_of(found: Any) -> dict[str, Any] | None:
    if not isinstance(found, dict):
        return None
    for key in WRAPPERS:
        if isinstance(found.get(key), dict):
            return _state_of(found[key])
    return found


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
