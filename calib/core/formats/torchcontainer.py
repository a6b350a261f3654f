"""The files of ``torch.save``: a pickle and the bytes of its tensors, read and written without PyTorch.

Zip archives (PyTorch 1.6 and later, TorchScript too) and the older form are read; archives are written.
"""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.fileformats import LEGACY_TORCH
from calib.core.formats.text import malformed
from calib.core.formats.torchpickle import Reader, Vault

REMEDY = "restore the file, or save the state dict again: torch.save(model.state_dict(), PATH)"
FOLDER = "archive"
EPOCH = (1980, 1, 1, 0, 0, 0)
ALIGNMENT = 64
"""Where PyTorch lays the bytes of a tensor, so that they can be mapped into memory."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, KeyError, OSError, NotImplementedError, struct.error, RuntimeError)


def read_checkpoint(data: bytes, place: str) -> Any:
    """Read what ``torch.save`` wrote.

    Returns:
        Dictionaries, lists, numbers and texts, ``Tensor`` and ``Inert`` of :mod:`calib.core.formats.torchpickle`.

    Raises:
        FormatError: a damaged file, or none of PyTorch's.
    """
    try:
        return _read_legacy(data) if data.startswith(LEGACY_TORCH) else _read_archive(data)
    except _DAMAGE as error:
        raise malformed(f"{place}: byte 0", "a PyTorch file", _said(error), REMEDY) from error
    except Exception as error:
        raise malformed(f"{place}: byte 0", "a pickle of tensors", _said(error), REMEDY) from error


def _said(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]


def _read_archive(data: bytes) -> Any:
    archive = zipfile.ZipFile(io.BytesIO(data))
    names = [name for name in archive.namelist() if name.rpartition("/")[2] == "data.pkl"]
    if not names:
        raise KeyError("an archive without data.pkl")
    if any(item.file_size > len(data) for item in archive.infolist()):
        raise zipfile.BadZipFile("a compressed archive; PyTorch writes plain ones")
    folder = min(names, key=len).removesuffix("data.pkl")
    order = archive.read(f"{folder}byteorder") if f"{folder}byteorder" in archive.namelist() else b"little"
    vault = Vault(lambda key: archive.read(f"{folder}data/{key}"), ">" if order.strip() == b"big" else "<")
    return Reader(io.BytesIO(archive.read(f"{folder}data.pkl")), vault).load()


def _read_legacy(data: bytes) -> Any:
    """Read the form of PyTorch before 1.6: five pickles, then the storages one after another."""
    stream = io.BytesIO(data)
    pieces: dict[str, bytes] = {}
    vault = Vault(pieces.__getitem__)
    _, _, system, content, keys = (Reader(stream, vault).load() for _ in range(5))
    if isinstance(system, Mapping) and system.get("little_endian") is False:
        vault.order = ">"
    for key in map(str, keys):
        (count,) = struct.unpack(f"{vault.order}q", stream.read(8))
        held = vault.found[key]
        if count != held.count:
            raise ValueError(f"storage {key} of {count} elements, {held.count} expected")
        width = 2 if held.code == "bf16" else np.dtype(held.code).itemsize
        pieces[key] = stream.read(count * width)
    return content


def write_checkpoint(arrays: Mapping[str, NDArray[np.float32]]) -> bytes:
    """Write float32 arrays as a state dict; the same bytes for the same arrays, keys sorted.

    ``torch.load(path, weights_only=True)`` gives a dictionary of tensors on the CPU.
    """
    items = sorted(arrays.items())
    members = {"data.pkl": _pickled(items), "byteorder": b"little"}
    members |= {f"data/{index}": np.asarray(array, "<f4").tobytes() for index, (_, array) in enumerate(items)}
    members |= {"version": b"3\n"}
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(f"{FOLDER}/{name}", EPOCH)
            start = stream.tell() + 30 + len(info.filename) + 4
            padding = -start % ALIGNMENT
            info.extra = struct.pack("<2sH", b"FB", padding) + b"Z" * padding
            archive.writestr(info, content)
    return stream.getvalue()


def _pickled(items: Iterable[tuple[str, NDArray[np.float32]]]) -> bytes:
    """Assemble the pickle by hand: each tensor as a call of ``torch._utils._rebuild_tensor_v2`` on its storage."""
    parts = [pickle.PROTO, b"\x02", pickle.EMPTY_DICT, pickle.MARK]
    for index, (key, array) in enumerate(items):
        parts += [_text(key), *_tensor(str(index), array)]
    return b"".join([*parts, pickle.SETITEMS, pickle.STOP])


def _tensor(key: str, array: NDArray[np.float32]) -> list[bytes]:
    steps = np.zeros(array.shape, np.float32).strides
    return [
        b"ctorch._utils\n_rebuild_tensor_v2\n",
        pickle.MARK,
        pickle.MARK,
        _text("storage"),
        b"ctorch\nFloatStorage\n",
        _text(key),
        _text("cpu"),
        _whole(array.size),
        pickle.TUPLE,
        pickle.BINPERSID,
        _whole(0),
        _tuple(array.shape),
        _tuple(step // 4 for step in steps),
        pickle.NEWFALSE,
        b"ccollections\nOrderedDict\n",
        pickle.EMPTY_TUPLE,
        pickle.REDUCE,
        pickle.TUPLE,
        pickle.REDUCE,
    ]


def _text(value: str) -> bytes:
    encoded = value.encode()
    return pickle.BINUNICODE + struct.pack("<I", len(encoded)) + encoded


def _whole(value: int) -> bytes:
    encoded = pickle.encode_long(value)
    return pickle.LONG1 + bytes([len(encoded)]) + encoded


def _tuple(values: Iterable[int]) -> bytes:
    return pickle.MARK + b"".join(map(_whole, values)) + pickle.TUPLE
