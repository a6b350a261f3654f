"""Contact sheets: the chosen images on one PNG, with key, score, light and sampler below each."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from calib.edges.images import read_picture
from calib.errors import ImageError

FONT = cv2.FONT_HERSHEY_SIMPLEX
MARGIN = 24
GAP = 16
LINE = 18
TITLE_SCALE, TEXT_SCALE = 0.7, 0.42
PAPER, INK, MUTED, FRAME = (250, 250, 250), (32, 32, 32), (110, 110, 110), (225, 225, 225)
TILE_WIDTHS = ((12, 320), (60, 256), (200, 208), (10**9, 176))
"""Up to this many images, thumbnails are this many pixels wide."""
MOST_TILES = 1000
CAPTION_LINES = 3


@dataclass(frozen=True)
class Tile:
    """One image of a sheet.

    Attributes:
        address: the picture.
        title: first line, the image's key; its end is shown when it is too long.
        lines: further lines of the caption.
    """

    address: str
    title: str
    lines: tuple[str, ...]


def render_sheet(heading: str, notes: Sequence[str], tiles: Sequence[Tile], workers: int = 1) -> bytes:
    """Draw a contact sheet, tiles from left to right in their order.

    The number of columns makes the sheet about 4:3, at most ten columns. Beyond ``MOST_TILES`` images the rest is
    counted in the heading. An image that cannot be read any more shows as an empty frame that says so.

    Args:
        heading: first line.
        notes: further lines.
        tiles: the images.
        workers: threads that decode.

    Returns:
        PNG bytes, the same for any number of workers.
    """
    shown = tiles[:MOST_TILES]
    if len(shown) < len(tiles):
        notes = [*notes, f"The first {len(shown)} of {len(tiles)} images are shown."]
    width = next(size for most, size in TILE_WIDTHS if len(shown) <= most)
    with ThreadPoolExecutor(workers) as pool:
        pictures = list(pool.map(lambda tile: _thumbnail(tile.address, width), shown))
    height = max((picture.shape[0] for picture in pictures), default=0)
    columns = choose_columns(len(shown), width, height)
    lines = _wrap(notes, 2 * MARGIN + columns * (width + GAP) - GAP)
    top = MARGIN + 30 + LINE * len(lines) + GAP
    cell_height = height + CAPTION_LINES * LINE + GAP
    rows = -(-len(shown) // columns)
    sheet = np.full((top + rows * cell_height + MARGIN, 2 * MARGIN + columns * (width + GAP) - GAP, 3), PAPER, np.uint8)
    _write_heading(sheet, heading, lines)
    for number, (tile, picture) in enumerate(zip(shown, pictures, strict=True)):
        x = MARGIN + number % columns * (width + GAP)
        y = top + number // columns * cell_height
        _draw_tile(sheet, x, y, width, height, tile, picture)
    _, encoded = cv2.imencode(".png", sheet, [cv2.IMWRITE_PNG_COMPRESSION, 6])
    return encoded.tobytes()


def choose_columns(tiles: int, width: int, height: int) -> int:
    """Choose the number of columns (3 to 10) that brings the sheet nearest to 4:3."""
    if tiles == 0:
        return 3
    cell = (width + GAP) / (height + CAPTION_LINES * LINE + GAP)
    return int(np.clip(round((tiles * 4 / 3 / cell) ** 0.5), 3, 10))


def printable(text: str) -> str:
    """Replace what the drawing font (ASCII) lacks by question marks."""
    return text.encode("ascii", "replace").decode()


def shorten(text: str, width: int, scale: float = TEXT_SCALE) -> str:
    """Cut a text at its front, where paths say least, until it fits ``width`` pixels."""
    text = printable(text)
    if _text_width(text, scale) <= width:
        return text
    while len(text) > 1 and _text_width("..." + text, scale) > width:
        text = text[1:]
    return "..." + text


def _thumbnail(address: str, width: int) -> NDArray[np.uint8]:
    """Decode and shrink to ``width``; BGR, at most twice as high as wide."""
    try:
        pixels = read_picture(address).pixels
    except ImageError:
        return _missing(width)
    scale = min(width / pixels.shape[1], 1.5 * width / pixels.shape[0])
    size = (max(round(pixels.shape[1] * scale), 1), max(round(pixels.shape[0] * scale), 1))
    kind = cv2.INTER_AREA if scale < 1 else cv2.INTER_NEAREST
    return np.asarray(cv2.cvtColor(cv2.resize(pixels, size, interpolation=kind), cv2.COLOR_RGB2BGR))


def _missing(width: int) -> NDArray[np.uint8]:
    picture = np.full((width * 3 // 4, width, 3), FRAME, np.uint8)
    cv2.putText(picture, "cannot be read", (10, width * 3 // 8), FONT, TEXT_SCALE, INK, 1, cv2.LINE_AA)
    return picture


def _draw_tile(
    sheet: NDArray[np.uint8], x: int, y: int, width: int, height: int, tile: Tile, picture: NDArray[np.uint8]
) -> None:
    sheet[y : y + height, x : x + width] = FRAME
    top, left = y + (height - picture.shape[0]) // 2, x + (width - picture.shape[1]) // 2
    sheet[top : top + picture.shape[0], left : left + picture.shape[1]] = picture
    for number, line in enumerate((tile.title, *tile.lines)[:CAPTION_LINES]):
        place = (x, y + height + (number + 1) * LINE - 4)
        colour = MUTED if number else INK
        cv2.putText(sheet, shorten(line, width), place, FONT, TEXT_SCALE, colour, 1, cv2.LINE_AA)


def _write_heading(sheet: NDArray[np.uint8], heading: str, lines: Sequence[str]) -> None:
    text = shorten(heading, sheet.shape[1] - 2 * MARGIN, TITLE_SCALE)
    cv2.putText(sheet, text, (MARGIN, MARGIN + 16), FONT, TITLE_SCALE, INK, 2, cv2.LINE_AA)
    for number, line in enumerate(lines):
        place = (MARGIN, MARGIN + 20 + LINE * (number + 1))
        cv2.putText(sheet, line, place, FONT, TEXT_SCALE, MUTED, 1, cv2.LINE_AA)


def _wrap(notes: Sequence[str], width: int) -> list[str]:
    """Break notes into lines that fit."""
    lines = []
    for note in notes:
        line = ""
        for word in printable(note).split():
            longer = f"{line} {word}".strip()
            if line and _text_width(longer, TEXT_SCALE) > width - 2 * MARGIN:
                lines.append(line)
                longer = word
            line = longer
        lines.append(line)
    return lines


def _text_width(text: str, scale: float) -> int:
    return int(cv2.getTextSize(text, FONT, scale, 1)[0][0])
