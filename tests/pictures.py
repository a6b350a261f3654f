"""Picture files built from the bytes up, independently of the decoders under test."""

from __future__ import annotations

import struct
import zlib

import cv2
import numpy as np

ADAM7 = ((0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1))
HTML = b"<!DOCTYPE html>\n<html><head><title>404</title></head><body>Not found</body></html>"
LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:0000\nsize 12345\n"


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(samples, bits=8, colour=None, palette=None, interlace=False, filters=(0,), extra=b"") -> bytes:
    """Encode ``[H, W]`` or ``[H, W, C]`` integers; ``filters`` are cycled over the rows."""
    samples = np.atleast_3d(np.asarray(samples))
    channels = samples.shape[2]
    colour = colour if colour is not None else 3 if palette is not None else {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    passes = ADAM7 if interlace else ((0, 0, 1, 1),)
    raw = b"".join(_scan(samples[y::dy, x::dx], bits, filters) for y, x, dy, dx in passes)
    height, width = samples.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, int(interlace))
    table = b"" if palette is None else chunk(b"PLTE", np.asarray(palette, np.uint8).tobytes())
    body = chunk(b"IHDR", header) + table + extra + chunk(b"IDAT", zlib.compress(raw)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def _scan(samples, bits, filters) -> bytes:
    height, width, channels = samples.shape
    if not (height and width):
        return b""
    if bits == 16:
        rows = samples.astype(">u2").reshape(height, -1).view(np.uint8)
    elif bits == 8:
        rows = samples.astype(np.uint8).reshape(height, -1)
    else:
        each = (samples.reshape(height, -1)[..., None] >> np.arange(bits - 1, -1, -1)) & 1
        rows = np.packbits(each.astype(np.uint8).reshape(height, -1), axis=1)
    distance = max(1, bits * channels // 8)
    above, out = np.zeros(rows.shape[1], int), []
    for index, row in enumerate(rows.astype(int)):
        kind = filters[index % len(filters)]
        out.append(bytes([kind]) + _filtered(row, above, distance, kind))
        above = row
    return b"".join(out)


def _filtered(row, above, distance, kind) -> bytes:
    left = np.concatenate([np.zeros(distance, int), row[:-distance]])[: len(row)]
    corner = np.concatenate([np.zeros(distance, int), above[:-distance]])[: len(row)]
    estimate = left + above - corner
    off = np.abs(np.stack([estimate - left, estimate - above, estimate - corner]))
    paeth = np.where((off[0] <= off[1]) & (off[0] <= off[2]), left, np.where(off[1] <= off[2], above, corner))
    guess = (np.zeros_like(row), left, above, (left + above) // 2, paeth)[kind]
    return ((row - guess) % 256).astype(np.uint8).tobytes()


def exif_block(orientation: int, order: str = ">") -> bytes:
    """A TIFF-structured EXIF block with one entry."""
    magic = b"MM\0*" if order == ">" else b"II*\0"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return magic + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


def jpeg(rgb, orientation: int | None = None, quality: int = 95) -> bytes:
    """A JPEG file, with EXIF where an orientation is given."""
    pixels = np.asarray(rgb, np.uint8)
    bgr = pixels[..., ::-1] if pixels.ndim == 3 else pixels
    data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
    if orientation is None:
        return data
    block = b"Exif\0\0" + exif_block(orientation)
    return data[:2] + b"\xff\xe1" + struct.pack(">H", len(block) + 2) + block + data[2:]


def tiff(plane, orientation: int = 1, bits: int = 8) -> bytes:
    """An uncompressed gray TIFF file of one strip."""
    values = np.asarray(plane)
    data = values.astype("<u2" if bits == 16 else np.uint8).tobytes()
    height, width = values.shape
    tags = [
        (256, 4, width), (257, 4, height), (258, 3, bits), (259, 3, 1), (262, 3, 1), (273, 4, 8),
        (274, 3, orientation), (277, 3, 1), (278, 4, height), (279, 4, len(data)),
    ]  # fmt: skip
    entries = b"".join(struct.pack("<HHII", tag, kind, 1, value) for tag, kind, value in tags)
    start = 8 + len(data) + len(data) % 2
    return (
        b"II*\0"
        + struct.pack("<I", start)
        + data.ljust(start - 8, b"\0")
        + struct.pack("<H", len(tags))
        + entries
        + bytes(4)
    )


def gradient(height: int, width: int):
    """A smooth RGB picture without symmetry, uint8 ``[H, W, 3]``."""
    y, x = np.mgrid[:height, :width]
    return np.stack([y * 200 // height, x * 200 // width + 20, (x + y) * 100 // (height + width)], -1).astype(np.uint8)
