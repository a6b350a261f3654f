"""Luma of picture files at the size the scores need.

JPEG stores luma itself, and a reduced picture comes out of its transform directly: decoding just that takes about half
the time of decoding colours at full size.
"""

from __future__ import annotations

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.core.imageheader import Header
from calib.core.scores import ReducedLuma, average_blocks, reduce_luma, reduction
from calib.edges.files import read_bytes
from calib.edges.images import choose_orientation, decode, read_header, read_picture, turn
from calib.errors import ImageError

GRAY_FLAGS = (
    cv2.IMREAD_GRAYSCALE,
    cv2.IMREAD_REDUCED_GRAYSCALE_2,
    cv2.IMREAD_REDUCED_GRAYSCALE_4,
    cv2.IMREAD_REDUCED_GRAYSCALE_8,
)
"""By log2 of the reduction."""


def read_luma(
    address: str,
    data: bytes | None = None,
    expected_size: tuple[int, int] | None = None,
    working_pixels: int = 1 << 62,
) -> ReducedLuma:
    """Read a picture's luma: BT.601, ``0.299 R + 0.587 G + 0.114 B``, full range, reduced to the working size.

    Of a JPEG file it is the Y plane as stored (JFIF, ITU-T T.871), reduced up to eightfold by a smaller inverse
    transform of its low frequencies (libjpeg's scaled decoding). Other pictures are decoded, then averaged over
    blocks. On the CamVid pictures, halved, the two differ by 0.16 levels on average.

    Args:
        address: where the picture is; names the file in errors.
        data: the file's bytes, where the caller has read them already.
        expected_size: ``(height, width)`` of its label, see :func:`calib.edges.images.read_picture`.
        working_pixels: reduce until at most this many pixels are left.

    Raises:
        ImageError: as :func:`calib.edges.images.read_picture`.
    """
    data = read_bytes(address) if data is None else data
    header = read_header(address, data)
    if header.kind != "jpeg" or header.mode not in ("rgb", "gray"):
        pixels = read_picture(address, data, expected_size).pixels
        return reduce_luma(np.asarray(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY)), working_pixels)
    turned = choose_orientation(header, expected_size)
    shift = reduction(header.size, working_pixels)
    first = min(shift, len(GRAY_FLAGS) - 1)
    if turned and any(side % (1 << first) for side in header.size):
        first = 0  # blocks begin at the upright picture's corner
    luma = _decode_reduced(address, data, header, first)
    luma = turn(luma, header.orientation) if turned else luma
    size = header.size[::-1] if turned and header.orientation >= 5 else header.size
    return ReducedLuma(average_blocks(luma, shift - first), size, shift)


def _decode_reduced(address: str, data: bytes, header: Header, shift: int) -> NDArray[np.uint8]:
    luma: NDArray[Any] = decode(address, data, GRAY_FLAGS[shift] | cv2.IMREAD_IGNORE_ORIENTATION)
    height, width = header.height >> shift, header.width >> shift
    expected = tuple(-(-side >> shift) for side in header.size)
    if luma.dtype != np.uint8 or luma.shape != expected:
        raise ImageError(
            address,
            expected=f"8-bit luma of shape {expected}, as its header states",
            got=f"{luma.dtype} of shape {luma.shape}",
            remedy="the file is damaged or a rare variant: save it again as PNG or JPEG",
        )
    return luma[:height, :width]
