"""Headers of image files: kind, size, mode, bit depth and EXIF orientation, without decoding a pixel.

Sources: ITU-T T.81 annex B (JPEG markers), the EXIF 2.3 and TIFF 6.0 specifications (orientation, tag 274),
the PNG specification third edition (chunks), RFC 9649 (WebP), GIF89a and the Windows bitmap headers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"
PNG_MODES = {0: "gray", 2: "rgb", 3: "palette", 4: "graya", 6: "rgba"}
TIFF_ORIENTATION = 274
NOT_FRAMES = frozenset({0xC4, 0xC8, 0xCC})
TEXT_BYTES = frozenset({9, 10, 13, *range(32, 127)})
NO_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


@dataclass(frozen=True)
class Header:
    """What a file's header says of its picture.

    Attributes:
        kind: ``jpeg``, ``png``, ``bmp``, ``webp``, ``gif``, ``tiff`` or ``pnm``.
        width: stored pixels a row, before any EXIF rotation.
        height: stored rows.
        mode: ``rgb``, ``gray``, ``graya``, ``rgba``, ``palette`` or ``cmyk``; with ``16`` behind it at 16 bits.
        bits: bits a sample (or a palette index).
        orientation: EXIF orientation 1..8; 1 when there is none.
        lossy: whether the stored values may differ from those that were saved.
        complete: False when the end of the file is missing.
        trailing: bytes behind the end of the picture.
        floating: whether samples are floating-point numbers.
    """

    kind: str
    width: int
    height: int
    mode: str
    bits: int = 8
    orientation: int = 1
    lossy: bool = False
    complete: bool = True
    trailing: int = 0
    floating: bool = False

    @property
    def size(self) -> tuple[int, int]:
        """Stored ``(height, width)``."""
        return self.height, self.width


def parse_header(data: bytes) -> Header:
    """Read the header of a picture.

    Args:
        data: the whole file.

    Raises:
        ValueError: it is no picture of a known kind, or its header is cut off or malformed; the text says which.
    """
    parser = _find_parser(data)
    if parser is None:
        raise ValueError(describe_content(data))
    try:
        header = parser(data)
    except (struct.error, IndexError) as error:
        raise ValueError("a picture whose header is cut off") from error
    if header.width < 1 or header.height < 1:
        raise ValueError(f"a picture of {header.width} x {header.height} pixels")
    return header


def describe_content(data: bytes) -> str:
    """Say in words what a file is that is no picture: empty, a web page, a Git LFS pointer, text."""
    head = data[:512].lstrip().lower()
    if not data:
        return "an empty file"
    if head.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page, as failed downloads leave behind"
    if head.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer; `git lfs pull` fetches the file itself"
    if head[4:8] == b"ftyp":
        return "a HEIF, AVIF or video file, which is not supported"
    return _describe_unknown(data)


def _describe_unknown(data: bytes) -> str:
    if not data[:512].strip(b"\0"):
        return f"{len(data)} bytes that begin with zeros, as broken copies leave behind"
    if all(byte in TEXT_BYTES for byte in data[:512]):
        return "a text file"
    return f"no picture format that is known here (first bytes {data[:8].hex(' ')})"


def exif_orientation(block: bytes) -> int:
    """Read the orientation from a TIFF-structured EXIF block; 1 when absent or malformed."""
    try:
        value = dict(_tiff_entries(block)).get(TIFF_ORIENTATION, 1)
    except (struct.error, IndexError, ValueError):
        return 1
    return value if 1 <= value <= 8 else 1


def _find_parser(data: bytes) -> Callable[[bytes], Header] | None:
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return _parse_webp
    if data[:1] == b"P" and data[1:2] in (b"1", b"2", b"3", b"4", b"5", b"6") and data[2:3].isspace():
        return _parse_pnm
    return next((parser for magic, parser in PARSERS.items() if data.startswith(magic)), None)


def _parse_jpeg(data: bytes) -> Header:
    width = height = components = 0
    orientation, bits, scan = 1, 8, 0
    for marker, start, end in jpeg_segments(data):
        if marker == 0xE1 and data[start : start + 6] == b"Exif\0\0":
            orientation = exif_orientation(data[start + 6 : end])
        elif 0xC0 <= marker <= 0xCF and marker not in NOT_FRAMES:
            bits, height, width, components = struct.unpack_from(">BHHB", data, start)
        elif marker == 0xDA:
            scan = end
    if not (scan and components):
        raise ValueError("a JPEG file without image data")
    last = data.rfind(b"\xff\xd9", scan)
    mode = {1: "gray", 3: "rgb", 4: "cmyk"}.get(components, f"{components}-component")
    trailing = len(data) - last - 2 if last >= 0 else 0
    return Header("jpeg", width, height, mode, bits, orientation, True, last >= 0, trailing)


def jpeg_segments(data: bytes, position: int = 2) -> Iterator[tuple[int, int, int]]:
    """Yield marker, payload start and end of the segments from a position up to and including a scan header."""
    while True:
        position = data.find(b"\xff", position)
        if position < 0:
            return
        while data[position] == 0xFF:
            position += 1
        marker = data[position]
        position += 1
        if marker == 0 or marker in NO_LENGTH:
            continue
        if marker == 0xD9:
            return
        (length,) = struct.unpack_from(">H", data, position)
        yield marker, position + 2, position + length
        position += length
        if marker == 0xDA:
            return


def _parse_png(data: bytes) -> Header:
    width, height, bits, colour = struct.unpack_from(">IIBB", data, 16)
    if data[12:16] != b"IHDR" or colour not in PNG_MODES or bits not in (1, 2, 4, 8, 16):
        raise ValueError("a PNG file with a malformed header")
    orientation, end = 1, 0
    for name, start, stop in png_chunks(data):
        if name == b"eXIf":
            orientation = exif_orientation(data[start:stop])
        elif name == b"IEND":
            end = stop + 4
    mode = PNG_MODES[colour] + ("16" if bits == 16 else "")
    return Header(
        "png", width, height, mode, bits, orientation, complete=end > 0, trailing=len(data) - end if end else 0
    )


def png_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield name, payload start and payload end of each whole chunk of a PNG file, up to IEND."""
    position, size = 8, len(data)
    while position + 12 <= size:
        (length,) = struct.unpack_from(">I", data, position)
        name, start = data[position + 4 : position + 8], position + 8
        if start + length + 4 > size:
            return
        yield name, start, start + length
        if name == b"IEND":
            return
        position = start + length + 4


def _parse_bmp(data: bytes) -> Header:
    (header_size,) = struct.unpack_from("<I", data, 14)
    if header_size == 12:
        width, height, _, depth = struct.unpack_from("<HHHH", data, 18)
    else:
        width, height, _, depth = struct.unpack_from("<iiHH", data, 18)
    mode = "palette" if depth <= 8 else "rgba" if depth == 32 else "rgb"
    return Header("bmp", width, abs(height), mode, min(depth, 8))


def _parse_gif(data: bytes) -> Header:
    width, height = struct.unpack_from("<HH", data, 6)
    return Header("gif", width, height, "palette", complete=data.rstrip(b"\0").endswith(b";"))


def _parse_webp(data: bytes) -> Header:
    width = height = 0
    alpha, lossy, orientation, whole = False, False, 1, len(data) >= struct.unpack_from("<I", data, 4)[0] + 8
    for name, start, stop in _webp_chunks(data):
        if name == b"VP8X":
            alpha = bool(data[start] & 0x10)
            width = int.from_bytes(data[start + 4 : start + 7], "little") + 1
            height = int.from_bytes(data[start + 7 : start + 10], "little") + 1
        elif name == b"VP8 ":
            lossy = True
            if not width:
                width, height = (value & 0x3FFF for value in struct.unpack_from("<HH", data, start + 6))
        elif name == b"VP8L" and not width:
            (packed,) = struct.unpack_from("<I", data, start + 1)
            width, height, alpha = (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1, bool(packed >> 28 & 1)
        elif name == b"EXIF":
            orientation = exif_orientation(data[start:stop].removeprefix(b"Exif\0\0"))
    return Header("webp", width, height, "rgba" if alpha else "rgb", 8, orientation, lossy, whole)


def _webp_chunks(data: bytes) -> Iterator[tuple[bytes, int, int]]:
    position = 12
    while position + 8 <= len(data):
        (length,) = struct.unpack_from("<I", data, position + 4)
        yield data[position : position + 4], position + 8, position + 8 + length
        position += 8 + length + (length & 1)


def _parse_pnm(data: bytes) -> Header:
    bare = b" ".join(line.partition(b"#")[0] for line in data[:4096].splitlines())
    tokens = bare.split()
    try:
        width, height = int(tokens[1]), int(tokens[2])
        most = 1 if tokens[0] in (b"P1", b"P4") else int(tokens[3])
    except ValueError as error:
        raise ValueError("a PNM file with a malformed header") from error
    bits = 16 if most > 255 else 8
    mode = ("rgb" if tokens[0] in (b"P3", b"P6") else "gray") + ("16" if bits == 16 else "")
    return Header("pnm", width, height, mode, bits)


def _parse_tiff(data: bytes) -> Header:
    tags = dict(_tiff_entries(data))
    bits, samples, photometric = tags.get(258, 1), tags.get(277, 1), tags.get(262, 1)
    mode = {2: "rgb", 3: "palette", 5: "cmyk", 6: "rgb"}.get(photometric, "gray")
    if mode == "rgb" and samples == 4:
        mode = "rgba"
    orientation = tags.get(TIFF_ORIENTATION, 1)
    return Header(
        "tiff",
        tags.get(256, 0),
        tags.get(257, 0),
        mode + ("16" if bits == 16 else ""),
        bits,
        orientation if 1 <= orientation <= 8 else 1,
        lossy=tags.get(259) in (6, 7),
        floating=tags.get(339, 1) == 3,
    )


def _tiff_entries(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield tag and first value of the integer entries of the first directory, classic TIFF or BigTIFF."""
    order = {b"II": "<", b"MM": ">"}.get(data[:2])
    if order is None:
        raise ValueError("a TIFF block with a malformed byte order")
    big = struct.unpack_from(order + "H", data, 2)[0] == 43
    word, count_format, first = ("Q", "Q", 8) if big else ("I", "H", 4)
    (offset,) = struct.unpack_from(order + word, data, first)
    (count,) = struct.unpack_from(order + count_format, data, offset)
    offset += struct.calcsize(count_format)
    width = struct.calcsize(order + word)
    for index in range(min(count, 4096)):
        place = offset + index * (4 + 2 * width)
        tag, kind, number = struct.unpack_from(order + "HH" + word, data, place)
        size = {3: 2, 4: 4, 16: 8}.get(kind)
        if size is None or number < 1:
            continue
        where = place + 4 + width
        if size * number > width:
            (where,) = struct.unpack_from(order + word, data, where)
        yield tag, struct.unpack_from(order + {2: "H", 4: "I", 8: "Q"}[size], data, where)[0]


PARSERS: dict[bytes, Callable[[bytes], Header]] = {
    b"\xff\xd8\xff": _parse_jpeg,
    PNG_SIGNATURE: _parse_png,
    b"BM": _parse_bmp,
    b"GIF8": _parse_gif,
    b"II*\0": _parse_tiff,
    b"MM\0*": _parse_tiff,
    b"II+\0": _parse_tiff,
    b"MM\0+": _parse_tiff,
}
