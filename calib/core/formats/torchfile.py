"""State dicts in PyTorch's own files, read with ``weights_only``: nothing in them is executed."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from typing import Any

from calib.core.formats import statedict
from calib.core.formats.text import malformed
from calib.errors import MissingLibraryError
from calib.types.rangetable import RangeTable

DEPTH = 3
"""How deep a checkpoint may hide its state dict (``{"model": {"state_dict": …}}``)."""


def read(data: bytes, place: str) -> RangeTable:
    """Read ``_amax`` keys from a checkpoint.

    Raises:
        MissingLibraryError: PyTorch is not installed.
        FormatError: no checkpoint, one that needs code of its own to load, or one without such keys.
    """
    torch = _require_torch(place)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's own, of files that it then refuses
            content = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:
        got = (str(error).splitlines() or [type(error).__name__])[0][:200]
        remedy = "save the state dict alone: torch.save(model.state_dict(), PATH)"
        raise malformed(f"{place}: byte 0", "a state dict that loads with weights_only=True", got, remedy) from error
    state = _state_dict(content, DEPTH) or {}
    arrays = {key: _array(value) for key, value in state.items() if statedict.wanted(key) and hasattr(value, "detach")}
    return statedict.table_of(arrays, statedict.TORCH, place)


def _array(value: Any) -> Any:
    whole = value.detach().cpu()
    return (whole.float() if whole.is_floating_point() else whole).numpy()


def _state_dict(content: Any, depth: int) -> Mapping[str, Any] | None:
    """Find the first mapping with ``_amax`` keys in a checkpoint."""
    if not isinstance(content, Mapping):
        return None
    if any(isinstance(key, str) and key.endswith(statedict.SUFFIX) for key in content):
        return {key: value for key, value in content.items() if isinstance(key, str)}
    inner = (_state_dict(value, depth - 1) for value in content.values()) if depth else iter(())
    return next(filter(None, inner), None)


def write(table: RangeTable) -> bytes:
    """Write ``_amax`` keys with ``torch.save``.

    Raises:
        MissingLibraryError: PyTorch is not installed.
        FormatError: the table names tensors, not modules.
    """
    torch = _require_torch(table.place)
    arrays = statedict.module_state(table)
    stream = io.BytesIO()
    torch.save({name: torch.from_numpy(array.copy()) for name, array in sorted(arrays.items())}, stream)
    return stream.getvalue()


def _require_torch(place: str) -> Any:
    try:
        import torch
    except ImportError as error:
        raise MissingLibraryError(
            place,
            expected="PyTorch, to read and write its files",
            got="none installed",
            remedy='pip install "calib-workbench[qat]", or save the state dict as safetensors or npz',
        ) from error
    return torch
