"""Float PyTorch networks: a factory called, its weights loaded without unpickling anything."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from calib.edges.evaluation.loading import call_factory
from calib.errors import FormatError, ModelError, UsageError

Tensor = Any
NESTS = ("state_dict", "model_state_dict", "model_state", "model", "net", "network", "weights", "module")
"""Keys under which training scripts put the weights, in the order tried."""
PREFIXES = ("module.", "_orig_mod.", "model.", "net.", "network.")
"""Prefixes of wrappers: DataParallel, compile, Lightning."""
SAFE_TYPES: Mapping[str, Any] = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip


def make_module(address: str, weights: Path | None) -> nn.Module:
    """Call a factory and load weights into what it makes.

    Args:
        address: ``package.module:factory``; the factory takes no arguments, and may be a class.
        weights: ``.pt``, ``.pth`` or ``.safetensors``, or None where the factory loads them itself.

    Returns:
        the module in evaluation mode, on the CPU.

    Raises:
        UsageError: the factory cannot be called, or makes something else.
        FormatError: the weights cannot be read.
        ModelError: they do not fit.
    """
    module = call_factory(address)
    if not isinstance(module, nn.Module):
        raise UsageError(
            address,
            expected="a factory of a PyTorch module",
            got=f"one of {type(module).__name__}",
            remedy="name a function or class that makes the network; an ONNX file is passed as it is",
        )
    if weights is not None:
        load_weights(module, read_weights(weights), str(weights))
    return module.float().eval().cpu()


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a file of weights by name; nests of training scripts are opened.

    Raises:
        FormatError: the file cannot be read, holds no tensors, or needs unpickling of more than tensors.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise _unreadable(path, (error.strerror or type(error).__name__).lower()) from error
    if data[8:9] == b"{" and len(data) > 16 and struct.unpack("<Q", data[:8])[0] < len(data):
        return _read_safetensors(path, data)
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise _unreadable(path, f"{type(error).__name__}: {' '.join(str(error).split())[:200]}") from error
    tensors = _opened(found)
    if not tensors:
        raise _unreadable(path, "no tensors in it")
    return tensors


def _read_safetensors(path: Path, data: bytes) -> dict[str, Tensor]:
    """Read the safetensors format: a JSON header of types, shapes and offsets, then the bytes."""
    length = struct.unpack("<Q", data[:8])[0]
    try:
        header = json.loads(data[8 : 8 + length])
        body = data[8 + length :]
        return {name: _safe_tensor(item, body) for name, item in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, RuntimeError) as error:
        raise _unreadable(path, f"a damaged safetensors file ({error})") from error


def _safe_tensor(item: Mapping[str, Any], body: bytes) -> Tensor:
    begin, end = item["data_offsets"]
    if end > len(body):
        raise ValueError("a file that is cut short")
    raw = torch.from_numpy(np.frombuffer(body[begin:end], np.uint8).copy())
    return raw.view(SAFE_TYPES[item["dtype"]]).reshape(item["shape"])


def _opened(found: Any) -> dict[str, Tensor]:
    """Find the tensors, in a mapping of them or in one nested as training scripts do."""
    for _ in range(4):
        if not isinstance(found, Mapping):
            return {}
        tensors = {str(name): item for name, item in found.items() if torch.is_tensor(item)}
        nested = next((found[key] for key in NESTS if isinstance(found.get(key), Mapping)), None)
        if tensors or nested is None:
            return tensors
        found = nested
    return {}


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], place: str) -> None:
    """Load weights by name, whatever wrapper's prefix they carry.

    Raises:
        ModelError: names are missing or left over, or shapes differ.
    """
    wanted = module.state_dict()
    named = max(_spellings(tensors), key=lambda one: len(set(one) & set(wanted)))
    counters = {name for name in wanted if name.endswith("num_batches_tracked")}
    missing = sorted(set(wanted) - set(named) - counters)
    surplus = sorted(set(named) - set(wanted))
    if missing or surplus:
        parts = [
            f"{len(names)} {words} ({', '.join(names[:3])}{', …' * (len(names) > 3)})"
            for names, words in ((missing, "missing"), (surplus, "not in the network"))
            if names
        ]
        raise ModelError(
            place, expected=f"the {len(wanted)} tensors of the network", got=", ".join(parts),
            remedy="check that the factory makes the network that these weights were trained in",
        )  # fmt: skip
    for name, tensor in named.items():
        if tensor.shape != wanted[name].shape:
            raise ModelError(
                place,
                expected=f"{name} of shape {tuple(wanted[name].shape)}",
                got=str(tuple(tensor.shape)),
                remedy="check the factory's arguments, such as the number of classes",
            )
    module.load_state_dict({**wanted, **named})


def _spellings(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The names as they are, and without each wrapper's prefix, one taken off after the other."""
    found = [dict(tensors)]
    for _ in range(3):
        last = found[-1]
        prefix = next((item for item in PREFIXES if last and all(name.startswith(item) for name in last)), None)
        if prefix is None:
            break
        found.append({name.removeprefix(prefix): item for name, item in last.items()})
    return found


def _unreadable(path: Path, got: str) -> FormatError:
    return FormatError(
        str(path),
        expected="weights: a state dict saved by torch.save, or a safetensors file",
        got=got,
        remedy="save them with torch.save(network.state_dict(), PATH); whole pickled networks are not unpickled",
    )
