"""Pictures from files: any mode to RGB uint8, upright. Labels have their own decoders on purpose (see ``labels``).

Conversions, one rule a mode:

- gray, with or without alpha: the value on all three channels.
- palette: the palette's colours; alpha of any mode is dropped, colours are not blended with a background.
- 16 bits: ``round(value / 257)``, so that 0..65535 maps onto 0..255.
- CMYK and YCCK JPEG: read as inverted, the way Adobe writes them and browsers read them.
- EXIF orientation 1..8 is applied, unless only the stored layout has the label's size.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.core.imageheader import Header, parse_header
from calib.edges.files import read_bytes
from calib.errors import ImageError

MAX_PIXELS = 1 << 27
"""Larger pictures are refused before anything is allocated (134 million pixels, 400 MB decoded)."""

DEFLATE_LIMIT = 1032
"""No deflate stream unpacks to more than this many times its size (zlib's technical notes)."""

INVERSE = {6: 8, 8: 6}


@dataclass(frozen=True)
class Picture:
    """A decoded picture.

    Attributes:
        pixels: uint8 ``[H, W, 3]`` RGB, contiguous.
        mode: how the file stores it: ``rgb``, ``gray``, ``graya``, ``rgba``, ``palette``, ``cmyk``, ``rgb16``, …
        orientation: EXIF orientation of the file, 1..8; 1 when it states none.
        applied: whether ``pixels`` were turned upright by it.
        kind: file format, whatever the file's name says: ``jpeg``, ``png``, …
    """

    pixels: NDArray[np.uint8]
    mode: str
    orientation: int
    applied: bool
    kind: str = ""


def read_picture(address: str, data: bytes | None = None, expected_size: tuple[int, int] | None = None) -> Picture:
    """Read a picture as RGB.

    Args:
        address: where it is; names the file in errors.
        data: the file's bytes, where the caller has read them already.
        expected_size: ``(height, width)`` of its label. When only the stored layout has this size, the EXIF
            orientation is not applied, so that picture and label stay aligned.

    Raises:
        ImageError: the file is missing, no picture, cut off, damaged, too large, or of an unsupported sample type.
    """
    data = read_bytes(address) if data is None else data
    header = read_header(address, data)
    pixels = _to_rgb8(address, decode(address, data, _decode_flags(header)), header)
    applied = choose_orientation(header, expected_size)
    stored_upright = header.kind == "tiff"  # OpenCV turns TIFF files itself, whatever the flags say
    if applied and not stored_upright:
        pixels = turn(pixels, header.orientation)
    elif stored_upright and not applied:
        pixels = turn(pixels, INVERSE.get(header.orientation, header.orientation))
    return Picture(pixels, header.mode, header.orientation, applied, header.kind)


def read_header(address: str, data: bytes) -> Header:
    """Parse and check a picture's header: known kind, whole file, sane size, supported samples.

    Raises:
        ImageError: the file cannot be decoded, or must not be.
    """
    try:
        header = parse_header(data)
    except ValueError as error:
        raise _unusable(address, "a picture", str(error), "replace the file, or take it out of the data set") from error
    if not header.complete:
        raise _unusable(
            address,
            f"a whole {header.kind.upper()} file",
            f"{len(data)} bytes without the end of the picture: the file is cut off",
            "copy or download it again, or take it out of the data set",
        )
    _check_size(address, data, header)
    if header.floating or header.bits > 16:
        raise _unusable(
            address,
            "samples of at most 16 bits, as integers",
            f"{header.bits}-bit {'floating-point' if header.floating else 'integer'} samples",
            "export it with 8 or 16 bits a sample; how floating-point values map to 0..255 is not guessed",
        )
    return header


def _check_size(address: str, data: bytes, header: Header) -> None:
    size = f"{header.width} x {header.height} pixels"
    if header.width * header.height > MAX_PIXELS:
        raise _unusable(
            address,
            f"at most {MAX_PIXELS / 1e6:.0f} million pixels",
            f"a header that declares {size}",
            "cut the picture into tiles; if it is not really that large, its header is damaged: replace it",
        )
    if header.kind == "png" and header.width * header.height * header.bits // 8 > DEFLATE_LIMIT * len(data):
        raise _unusable(
            address,
            f"enough data for {size}",
            f"{len(data)} bytes, which cannot unpack to that much",
            "its header is damaged or forged: replace the file",
        )


def decode(address: str, data: bytes, flags: int) -> NDArray[Any]:
    """Decode bytes with OpenCV, where no answer and every exception is an error that names the file.

    Raises:
        ImageError: the data is damaged or its variant unsupported.
    """
    quiet_opencv()
    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    except cv2.error as error:
        raise _damaged(address, str(error.err or error)) from error
    if pixels is None:
        raise _damaged(address, "data that its decoder rejects")
    return pixels


@functools.cache
def quiet_opencv() -> None:
    """Keep OpenCV's decoders from writing to standard error: what they say names no file, and our errors do."""
    if hasattr(cv2, "setLogLevel"):
        cv2.setLogLevel(0)
    else:  # OpenCV 5
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)


def choose_orientation(header: Header, expected_size: tuple[int, int] | None) -> bool:
    """Decide whether to apply the EXIF orientation.

    Applied unless the label's size equals the stored size and not the upright one.

    Args:
        header: the picture's.
        expected_size: ``(height, width)`` of its label, or None.
    """
    if header.orientation == 1:
        return False
    upright = header.size[::-1] if header.orientation >= 5 else header.size
    return expected_size is None or expected_size == upright or expected_size != header.size


def turn(pixels: NDArray[Any], orientation: int) -> NDArray[Any]:
    """Turn stored pixels upright by EXIF orientation 1..8 (EXIF 2.3, tag 0x0112)."""
    if orientation >= 5:
        pixels = cv2.transpose(pixels)
    flip = {2: 1, 3: -1, 4: 0, 6: 1, 7: -1, 8: 0}.get(orientation)
    return pixels if flip is None else cv2.flip(pixels, flip)


def _decodes_to_rgb(header: Header) -> bool:
    """Whether OpenCV (4.11 and later) can skip the detour over BGR; CMYK needs its BGR path."""
    return header.kind == "jpeg" and header.mode == "rgb" and hasattr(cv2, "IMREAD_COLOR_RGB")


def _decode_flags(header: Header) -> int:
    colour = cv2.IMREAD_COLOR_RGB if _decodes_to_rgb(header) else cv2.IMREAD_COLOR
    flags = colour | cv2.IMREAD_IGNORE_ORIENTATION
    return int(flags | cv2.IMREAD_ANYDEPTH) if header.bits == 16 else int(flags)


def _to_rgb8(address: str, pixels: NDArray[Any], header: Header) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint16:
        pixels = ((pixels.astype(np.uint32) + 128) // 257).astype(np.uint8)
    stored = pixels.shape[:2] if header.kind != "tiff" else tuple(sorted(pixels.shape[:2]))
    declared = header.size if header.kind != "tiff" else tuple(sorted(header.size))
    if pixels.dtype != np.uint8 or stored != declared:
        raise _damaged(address, f"{pixels.dtype} pixels of shape {pixels.shape} under a header of {header.size}")
    if not _decodes_to_rgb(header):
        cv2.cvtColor(pixels, cv2.COLOR_BGR2RGB, dst=pixels)
    return pixels


def _damaged(address: str, got: str) -> ImageError:
    return _unusable(
        address, "a picture that decodes", got, "the file is damaged or a rare variant: save it again as PNG or JPEG"
    )


def _unusable(address: str, expected: str, got: str, remedy: str) -> ImageError:
    return ImageError(address, expected=expected, got=got, remedy=remedy)
