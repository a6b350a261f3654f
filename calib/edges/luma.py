"""Luma of picture files. JPEG stores luma itself, so decoding stops there: about two thirds of the whole decode."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.edges.files import read_bytes
from calib.edges.images import choose_orientation, decode, read_header, read_picture, turn
from calib.errors import ImageError

GRAY_FLAGS = cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION


def read_luma(
    address: str, data: bytes | None = None, expected_size: tuple[int, int] | None = None
) -> NDArray[np.uint8]:
    """Read a picture's luma: BT.601, ``0.299 R + 0.587 G + 0.114 B``, full range.

    Of a JPEG file it is the Y plane as stored (JFIF, ITU-T T.871). Where a colour lies outside RGB's range, it
    differs from the luma of the decoded RGB; on the CamVid pictures by 0.03 levels on average.

    Args:
        address: where the picture is; names the file in errors.
        data: the file's bytes, where the caller has read them already.
        expected_size: ``(height, width)`` of its label, see :func:`calib.edges.images.read_picture`.

    Returns:
        uint8 ``[H, W]``, upright.

    Raises:
        ImageError: as :func:`calib.edges.images.read_picture`.
    """
    data = read_bytes(address) if data is None else data
    header = read_header(address, data)
    if header.kind != "jpeg" or header.mode not in ("rgb", "gray"):
        pixels = read_picture(address, data, expected_size).pixels
        return np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY))
    luma = decode(address, data, GRAY_FLAGS)
    if luma.dtype != np.uint8 or luma.shape != header.size:
        raise ImageError(
            address,
            expected=f"8-bit luma of shape {header.size}, as its header states",
            got=f"{luma.dtype} of shape {luma.shape}",
            remedy="the file is damaged or a rare variant: save it again as PNG or JPEG",
        )
    return turn(luma, header.orientation) if choose_orientation(header, expected_size) else luma
