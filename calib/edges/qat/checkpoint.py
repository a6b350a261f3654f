"""Checkpoints: tensors and JSON in one NumPy archive. Nothing in them can run; a reader sees the old one or the new.

``numpy.load`` reads them with pickling forbidden; so does this module.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from calib.edges.files import write_atomic

Tensor = Any
ABOUT = "about.json"


def save_arrays(path: Path, arrays: Mapping[str, NDArray[Any]], about: Mapping[str, Any]) -> None:
    """Write arrays and a JSON document, atomically; the same content gives the same bytes.

    Raises:
        OutputError: the folder cannot be written.
    """
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in sorted(arrays.items()):
            part = io.BytesIO()
            np.lib.format.write_array(part, np.asarray(array, order="C"), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), part.getvalue())
        text = json.dumps(about, sort_keys=True, ensure_ascii=True)
        archive.writestr(zipfile.ZipInfo(ABOUT), text)
    write_atomic(path, stream.getvalue())


def load_arrays(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]] | None:
    """Read arrays and the JSON document; None where there is no file, or a damaged one."""
    try:
        with zipfile.ZipFile(path) as archive:
            about = json.loads(archive.read(ABOUT))
            arrays = {
                name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(archive.read(name)), allow_pickle=False)
                for name in archive.namelist()
                if name != ABOUT
            }
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return None
    return (arrays, about) if isinstance(about, dict) else None


def to_arrays(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, NDArray[Any]]:
    """Copy tensors to arrays under ``PREFIX/NAME``."""
    return {f"{prefix}/{name}": tensor.detach().cpu().numpy().copy() for name, tensor in tensors.items()}


def with_prefix(prefix: str, arrays: Mapping[str, NDArray[Any]]) -> dict[str, Tensor]:
    """The tensors of one prefix, by name."""
    start = f"{prefix}/"
    return {
        name.removeprefix(start): torch.from_numpy(np.array(array))
        for name, array in arrays.items()
        if name.startswith(start)
    }


def optimizer_arrays(optimizer: Any) -> dict[str, NDArray[Any]]:
    """What an optimizer remembers, as arrays ``optimizer/PARAMETER/NAME``."""
    state = optimizer.state_dict()["state"]
    return {
        f"optimizer/{index}/{name}": np.asarray(value.detach().cpu().numpy() if torch.is_tensor(value) else value)
        for index, memory in state.items()
        for name, value in memory.items()
        if value is not None
    }


def restore_optimizer(optimizer: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Give an optimizer back what it remembered."""
    state: dict[int, dict[str, Tensor]] = {}
    for key, tensor in with_prefix("optimizer", arrays).items():
        index, _, name = key.partition("/")
        state.setdefault(int(index), {})[name] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
