"""Thumbnails of images for reports: small JPEGs, the same bytes every time."""

from __future__ import annotations

import cv2

from calib.edges.images import read_picture
from calib.errors import ImageError

WIDTH = 200
QUALITY = 80


def thumbnail(address: str, width: int = WIDTH) -> bytes:
    """A JPEG of the picture, ``width`` pixels wide at most; empty if it cannot be read any more."""
    try:
        pixels = read_picture(address).pixels
    except ImageError:
        return b""
    height = max(round(pixels.shape[0] * width / pixels.shape[1]), 1)
    if width < pixels.shape[1]:
        pixels = cv2.resize(pixels, (width, height), interpolation=cv2.INTER_AREA)
    _, encoded = cv2.imencode(".jpg", pixels[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
    return encoded.tobytes()
