"""Planes of a label file: integers as stored, or colours, never one made from the other.

OpenCV expands the palette of a palette PNG. Here the header of such a file is rewritten to gray before decoding, so
that the index plane itself comes out; the scan lines of both are the same bytes.
"""

from __future__ import annotations

import io
import struct
import zlib
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.core.imageheader import PNG_SIGNATURE, Header, png_chunks
from calib.edges.files import read_bytes
from calib.edges.images import decode, read_header, read_picture
from calib.errors import ImageError

LOW_BIT_SCALE = {1: 255, 2: 85, 4: 17}
KEEP_VALUES = cv2.IMREAD_UNCHANGED | cv2.IMREAD_IGNORE_ORIENTATION
NUMPY_MAGIC = b"\x93NUMPY"


@dataclass(frozen=True)
class Plane:
    """Decoded label values.

    Attributes:
        values: uint8 or uint16 ``[H, W]``, or uint8 ``[H, W, 3]`` RGB.
        mode: mode of the file.
        notes: oddities that do not make it unusable.
    """

    values: NDArray[Any]
    mode: str
    notes: tuple[str, ...] = ()


def read_index_plane(address: str, data: bytes | None = None) -> Plane:
    """Read a label whose integers are the label values: gray or palette PNG, gray TIFF, or a NumPy array.

    Raises:
        ImageError: missing, damaged, lossy, or colours where integers belong.
    """
    data = read_bytes(address) if data is None else data
    if data.startswith(NUMPY_MAGIC):
        return Plane(_load_array(address, data), "array")
    header = refuse_lossy(address, data)
    base = header.mode.removesuffix("16")
    if header.kind == "png" and base in ("gray", "palette"):
        return Plane(decode_png_plane(address, data, header), header.mode)
    if header.kind == "tiff" and base == "gray" and header.bits >= 8:
        return Plane(decode(address, data, KEEP_VALUES), header.mode)
    if base == "palette":
        raise ImageError(
            address,
            expected="label integers",
            got=f"a palette {header.kind.upper()} file, whose index plane is not accessible here",
            remedy="save it again as palette PNG without converting it, or declare label_format: rgb",
        )
    return _equal_channels(address, data, header)


def read_colour_plane(address: str, data: bytes | None = None) -> Plane:
    """Read a label whose colours are the classes, uint8 ``[H, W, 3]`` RGB; a palette stands for its colours.

    Raises:
        ImageError: missing, damaged, lossy, or 16 bits a channel.
    """
    data = read_bytes(address) if data is None else data
    header = refuse_lossy(address, data)
    if header.bits == 16:
        raise ImageError(
            address,
            expected="8 bits a channel",
            got="16 bits a channel",
            remedy="save the colours with 8 bits, or declare label_format: index if these are class numbers",
        )
    stored = None if header.orientation == 1 else header.size
    return Plane(read_picture(address, data, stored).pixels, header.mode)


def refuse_lossy(address: str, data: bytes) -> Header:
    """Check a label's header.

    Raises:
        ImageError: the file is unusable or compressed with loss; the message then shows which values it holds.
    """
    header = read_header(address, data)
    if not header.lossy:
        return header
    raise ImageError(
        address,
        expected="a label saved without loss (PNG)",
        got=f"a lossy {header.kind.upper()} file with values {value_histogram(address, data)}",
        remedy="export the labels again as PNG; thresholding a lossy mask back moves its borders",
    )


def value_histogram(address: str, data: bytes, most: int = 8) -> str:
    """Describe the gray values of a picture: the most frequent with their shares, and how many there are."""
    gray = decode(address, data, cv2.IMREAD_GRAYSCALE)
    counts = np.bincount(gray.reshape(-1), minlength=256)
    frequent = np.argsort(-counts, kind="stable")[:most]
    parts = [f"{value}: {counts[value] / gray.size:.1%}" for value in frequent if counts[value]]
    distinct = int((counts > 0).sum())
    return ", ".join(parts) + (f", … ({distinct} different values)" if distinct > len(parts) else "")


def decode_png_plane(address: str, data: bytes, header: Header) -> NDArray[Any]:
    """Decode the integers of a gray or palette PNG of any bit depth, interlaced or not.

    Returns:
        uint8 ``[H, W]`` up to 8 bits, uint16 at 16 bits.

    Raises:
        ImageError: damaged data.
    """
    body = [data[start - 8 : stop + 4] for name, start, stop in png_chunks(data) if name == b"IDAT"]
    shape = data[16:29]
    rewritten = b"".join([PNG_SIGNATURE, _chunk(b"IHDR", shape[:9] + b"\0" + shape[10:]), *body, _chunk(b"IEND", b"")])
    plane = decode(address, rewritten, KEEP_VALUES)
    if plane.shape != header.size:
        raise ImageError(
            address,
            expected=f"a plane of {header.size}",
            got=f"an array of shape {plane.shape}",
            remedy="the file is damaged: save it again",
        )
    scale = LOW_BIT_SCALE.get(header.bits)
    return plane if scale is None else plane // scale


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _equal_channels(address: str, data: bytes, header: Header) -> Plane:
    """Take gray stored as RGB, with or without alpha; anything coloured is refused."""
    pixels = decode(address, data, KEEP_VALUES)
    first = pixels if pixels.ndim == 2 else pixels[..., 0]
    colours = pixels[..., None] if pixels.ndim == 2 else pixels[..., :3]
    if pixels.ndim == 3 and pixels.shape[2] >= 3 and not (colours == first[..., None]).all():
        raise ImageError(
            address,
            expected="label integers (a gray or palette PNG)",
            got=f"a colour picture (mode {header.mode})",
            remedy="declare label_format: rgb with the colour of each class, or export index masks",
        )
    return Plane(np.ascontiguousarray(first), header.mode, (f"stored as {header.mode} with equal channels",))


def _load_array(address: str, data: bytes) -> NDArray[Any]:
    try:
        array = np.load(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ImageError(
            address, expected="a NumPy array file", got=str(error), remedy="save the array again with numpy.save"
        ) from error
    array = array.squeeze()
    whole = array.dtype.kind in "iub" and array.ndim == 2 and array.size > 0
    if not whole or array.min() < -1 or array.max() > 65535:
        raise ImageError(
            address,
            expected="integers of -1 to 65535, shape [H, W]",
            got=f"{array.dtype} of shape {array.shape}",
            remedy="save the class numbers as an integer array of two dimensions",
        )
    kind = np.uint8 if array.max() <= 255 and array.dtype.itemsize == 1 else np.uint16
    return np.asarray(array, kind)
