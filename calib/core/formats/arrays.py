"""Named arrays in a safetensors or npz file, read without trusting a single length in it."""

from __future__ import annotations

import io
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.core.formats.jsontext import JsonText, dump
from calib.core.formats.text import malformed
from calib.core.statfile import zip_arrays
from calib.errors import FormatError

Arrays = dict[str, NDArray[Any]]
Wanted = Callable[[str], bool]

DTYPES: Mapping[str, Any] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": np.uint16, "I64": np.int64,
    "I32": np.int32, "I16": np.int16, "I8": np.int8, "U8": np.uint8, "BOOL": np.bool_,
}  # fmt: skip
MEMBER_LIMIT = 1 << 33
"""Largest array unpacked from an npz, in bytes: a compressed bomb ends here."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, ValueError, KeyError, OSError, EOFError, NotImplementedError, struct.error)


def read_safetensors(data: bytes, place: str, wanted: Wanted) -> Arrays:
    """Read the arrays whose names are wanted.

    Raises:
        FormatError: a header that is no JSON (line and column within it), or an array outside the file.
    """
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise malformed(f"{place}: byte 0", "a safetensors header", f"{len(data)} bytes, header of {length}")
    header = JsonText(data[8 : 8 + length], f"{place} (header)")
    body = memoryview(data)[8 + length :]
    return {
        name: _view(header, name, entry, body)
        for name, entry in header.content.items()
        if name != "__metadata__" and wanted(name)
    }


def _view(header: JsonText, name: str, entry: Any, body: memoryview) -> NDArray[Any]:
    entry = header.mapping((name,), entry)
    dtype, shape, span = DTYPES.get(str(entry.get("dtype"))), entry.get("shape"), entry.get("data_offsets")
    if dtype is None or not _lengths(shape) or not _lengths(span) or len(span) != 2:
        raise header.error((name,), "dtype, shape and data_offsets", entry)
    start, end = (int(item) for item in span)
    dims = [int(item) for item in shape]
    if not start <= end <= len(body) or end - start != math.prod(dims) * np.dtype(dtype).itemsize or len(dims) > 32:
        raise header.error((name,), f"an array inside the {len(body)} bytes of data", entry)
    array: NDArray[Any] = np.frombuffer(body[start:end], dtype).reshape(dims)
    if entry["dtype"] == "BF16":  # the upper half of a float32
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array


def _lengths(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, float) and 0 <= item < 2**53 for item in value)


def write_safetensors(arrays: Mapping[str, NDArray[np.float32]], metadata: Mapping[str, str]) -> bytes:
    """Write float32 arrays, sorted by name."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)}
    position, bodies = 0, []
    for name, array in sorted(arrays.items()):
        bodies.append(np.ascontiguousarray(array, "<f4").tobytes())
        span = [position, position + len(bodies[-1])]
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": span}
        position = span[1]
    text = dump(header)
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(bodies)


def read_npz(data: bytes, place: str, wanted: Wanted) -> Arrays:
    """Read the arrays whose names are wanted; no pickles.

    Raises:
        FormatError: a damaged archive or member.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return dict(_members(archive, place, wanted))
    except FormatError:
        raise
    except (*_DAMAGE, RuntimeError, SyntaxError, TypeError) as error:
        raise malformed(f"{place}: byte 0", "an npz file", str(error) or type(error).__name__) from error


def _members(archive: zipfile.ZipFile, place: str, wanted: Wanted) -> Iterator[tuple[str, NDArray[Any]]]:
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if wanted(name):
            if info.file_size > MEMBER_LIMIT:
                got = f"{info.file_size} bytes"
                raise malformed(f"{place}: byte {info.header_offset}", f"an array {name!r} of sane size", got)
            yield name, _array(archive.read(info), f"{place}: byte {info.header_offset}", name)


def _array(raw: bytes, place: str, name: str) -> NDArray[Any]:
    """Read an npy member after checking its header against the bytes that are there."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise malformed(place, f"an npy array {name!r}", f"format version {version[0]}.{version[1]}")
    shape, fortran, dtype = read_header[version](stream)
    body = raw[stream.tell() :]
    sound = dtype.kind in "fiub" and all(isinstance(side, int) and side >= 0 for side in shape) and len(shape) <= 32
    if not sound or math.prod(shape) * dtype.itemsize != len(body):
        raise malformed(place, f"numbers in array {name!r}", f"{dtype} of shape {shape} in {len(body)} bytes")
    return np.frombuffer(body, dtype).reshape(shape, order="F" if fortran else "C")


def write_npz(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Write arrays sorted by name, the same bytes for the same arrays."""
    return zip_arrays(dict(sorted(arrays.items())))
