"""Pictures for the page: encoding them, and embedding them without a file beside the report."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

_SIGNATURES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))


def thumbnail_jpeg(pixels: NDArray[np.uint8], longest: int = 224, quality: int = 72) -> bytes:
    """Shrink an image so that its longer side has ``longest`` pixels at most, and encode it as JPEG.

    Args:
        pixels: uint8 ``[H, W, 3]`` RGB or ``[H, W]`` grey.
        longest: longer side in pixels.
        quality: JPEG quality, 1 to 100.
    """
    import cv2

    height, width = pixels.shape[:2]
    factor = min(1.0, longest / max(height, width))
    size = (max(1, round(width * factor)), max(1, round(height * factor)))
    small = cv2.resize(np.ascontiguousarray(pixels), size, interpolation=cv2.INTER_AREA)
    ordered = small if small.ndim == 2 else cv2.cvtColor(small, cv2.COLOR_RGB2BGR)
    _, encoded = cv2.imencode(".jpg", ordered, [cv2.IMWRITE_JPEG_QUALITY, quality])
    return encoded.tobytes()


def data_uri(picture: bytes) -> str:
    """Embed an encoded picture.

    Raises:
        ValueError: the bytes are no JPEG, PNG or WebP.
    """
    return f"data:{media_type(picture)};base64,{base64.b64encode(picture).decode('ascii')}"


def media_type(picture: bytes) -> str:
    """Tell the media type from the first bytes.

    Raises:
        ValueError: the bytes are no JPEG, PNG or WebP.
    """
    if picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        return "image/webp"
    for signature, kind in _SIGNATURES:
        if picture.startswith(signature):
            return kind
    raise ValueError(f"a thumbnail starts with {picture[:8]!r}: no JPEG, PNG or WebP")
