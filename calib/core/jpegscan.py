"""Walk the entropy-coded data of a JPEG file, to tell whether it is whole.

Decoders paint over what is missing and go on, with a word on standard error that names no file. This walk follows the
Huffman codes of sequential files (ITU-T T.81, annex F.2.2) without computing a pixel, and counts what is missing and
what is too much. Progressive and arithmetic-coded files are not walked.
"""

from __future__ import annotations

import functools
import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from calib.core.imageheader import jpeg_segments

HUFFMAN_SEQUENTIAL = (0xC0, 0xC1)
FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
BITS, COUNT, POSITION = 0, 1, 2
FULL, DAMAGED = 0, -1
SHORT_CODE = 9


@dataclass(frozen=True)
class ScanCheck:
    """What the walk found.

    Attributes:
        walked: False for files that are not walked; the other values say nothing then.
        done: share of the coefficient blocks that are there, 0..1.
        extraneous: bytes inside the scans that belong to no block.
    """

    walked: bool
    done: float = 1.0
    extraneous: int = 0


@dataclass
class Frame:
    """What the segments before a scan have said.

    Attributes:
        height: rows of pixels.
        width: pixels a row.
        sampling: vertical and horizontal sampling factor of each component, by its id.
        tables: Huffman tables by class (0 DC, 1 AC) and number, uint16: length << 8 | symbol for the first
            ``SHORT_CODE`` bits where they hold a whole code, then for the first 16 bits; 0 for no code.
        restart: units between restart markers, 0 for none.
    """

    height: int = 0
    width: int = 0
    sampling: dict[int, tuple[int, int]] = field(default_factory=dict)
    tables: dict[tuple[int, int], NDArray[np.uint16]] = field(default_factory=dict)
    restart: int = 0


def check_scan(data: bytes) -> ScanCheck:
    """Walk a JPEG file's scans.

    Args:
        data: the whole file.

    Returns:
        how much of it is there; ``walked`` is False where the file is not Huffman-coded sequential, or malformed in a
        way that its decoder reports.
    """
    try:
        return _check(data)
    except (struct.error, IndexError, KeyError, ValueError, ZeroDivisionError):
        return ScanCheck(False)


def _check(data: bytes) -> ScanCheck:
    stream, frame = np.frombuffer(data, np.uint8), Frame()
    done = expected = extraneous = 0
    covered: set[int] = set()
    position = 2
    while (scan := _read_segments(data, position, frame)) is not None:
        start, end = scan
        selectors = data[start + 1 : start + 1 + 2 * data[start]]
        tables, order, units = _plan_scan(selectors, frame)
        found, position, extra = _walk(stream, end, tables, order, units, frame.restart)
        covered |= set(selectors[::2])
        done, expected, extraneous = done + found, expected + units * len(order), extraneous + extra
    if not expected:
        return ScanCheck(False)
    return ScanCheck(True, done / expected * len(covered) / len(frame.sampling), extraneous)


def _read_segments(data: bytes, position: int, frame: Frame) -> tuple[int, int] | None:
    """Take in segments up to the next scan header; its payload start and end, or None at the end of the file."""
    for marker, start, end in jpeg_segments(data, position):
        if marker in FRAMES and marker not in HUFFMAN_SEQUENTIAL:
            raise ValueError("not a sequential Huffman-coded file")
        if marker in HUFFMAN_SEQUENTIAL:
            frame.height, frame.width = struct.unpack_from(">HH", data, start + 1)
            parts = (data[start + 6 + 3 * index :][:3] for index in range(data[start + 5]))
            frame.sampling = {part[0]: (part[1] & 15, part[1] >> 4) for part in parts}
        elif marker == 0xC4:
            frame.tables |= _read_tables(data[start:end])
        elif marker == 0xDD:
            (frame.restart,) = struct.unpack_from(">H", data, start)
        elif marker == 0xDA:
            return start, end
    return None


@functools.lru_cache(maxsize=64)
def _read_tables(block: bytes) -> dict[tuple[int, int], NDArray[np.uint16]]:
    """Build look-up tables from code lengths (annex C); most files share the few sets that encoders come with."""
    tables = {}
    position = 0
    while position < len(block):
        kind, counts = block[position], block[position + 1 : position + 17]
        symbols = block[position + 17 : position + 17 + sum(counts)]
        tables[kind >> 4, kind & 15] = _expand_codes(counts, symbols)
        position += 17 + len(symbols)
    return tables


def _expand_codes(counts: bytes, symbols: bytes) -> NDArray[np.uint16]:
    table = np.zeros(1 << 16, np.uint16)
    code = taken = 0
    for length, count in enumerate(counts, 1):
        step = 1 << 16 - length
        for symbol in symbols[taken : taken + count]:
            table[code : code + step] = length << 8 | symbol
            code += step
        taken += count
    short = table[:: 1 << 16 - SHORT_CODE]
    return np.concatenate([np.where(short >> 8 <= SHORT_CODE, short, 0), table])


def _plan_scan(selectors: bytes, frame: Frame) -> tuple[NDArray[np.uint16], NDArray[np.int64], int]:
    """Huffman tables, the rows of the DC and the AC table of each block of a unit, and the number of units (A.2)."""
    parts = [(frame.sampling[selectors[i]], selectors[i + 1]) for i in range(0, len(selectors), 2)]
    tallest = max(vertical for vertical, _ in frame.sampling.values())
    widest = max(horizontal for _, horizontal in frame.sampling.values())
    if len(parts) == 1:
        (vertical, horizontal), _ = parts[0]
        rows = _ceil(_ceil(frame.height * vertical, tallest), 8)
        columns = _ceil(_ceil(frame.width * horizontal, widest), 8)
        repeats = [1]
    else:
        rows, columns = _ceil(frame.height, 8 * tallest), _ceil(frame.width, 8 * widest)
        repeats = [vertical * horizontal for (vertical, horizontal), _ in parts]
    keys = sorted({(kind, number) for _, table in parts for kind, number in ((0, table >> 4), (1, table & 15))})
    order = [
        (keys.index((0, table >> 4)), keys.index((1, table & 15)))
        for (_, table), count in zip(parts, repeats, strict=True)
        for _ in range(count)
    ]
    return np.stack([frame.tables[key] for key in keys]), np.array(order), rows * columns


def _ceil(number: int, divisor: int) -> int:
    return -(-number // divisor)


@njit(nogil=True, cache=True)
def _walk(
    data: NDArray[np.uint8],
    start: int,
    tables: NDArray[np.uint16],
    order: NDArray[np.int64],
    units: int,
    restart: int,
) -> tuple[int, int, int]:
    """Walk one scan; blocks that are there, the position behind it, and extraneous bytes."""
    state = np.zeros(3, np.int64)
    state[POSITION] = start
    extraneous = 0
    for unit in range(units):
        if restart > 0 and unit > 0 and unit % restart == 0:
            extraneous += _to_marker(data, state)
            if not _take_restart(data, state):
                return unit * len(order), state[POSITION], extraneous
        for block in range(len(order)):
            if _walk_block(data, state, tables[order[block, 0]], tables[order[block, 1]]) != FULL:
                return unit * len(order) + block, _scan_end(data, state[POSITION]), extraneous
    extraneous += _to_marker(data, state)
    return units * len(order), state[POSITION], extraneous


@njit(nogil=True, cache=True)
def _walk_block(data: NDArray[np.uint8], state: NDArray[np.int64], dc: NDArray[Any], ac: NDArray[Any]) -> int:
    """Take the codes of one block of 64 coefficients; each with its extra bits is at most 32 bits long."""
    bits, count, position = _load(data, state[BITS], state[COUNT], state[POSITION])
    entry = _look_up(dc, bits, count)
    count -= (entry >> 8) + (entry & 0xFF)
    coefficient = 1
    damaged = entry == 0 or count < 0
    while coefficient < 64 and not damaged:
        bits, count, position = _load(data, bits, count, position)
        entry = _look_up(ac, bits, count)
        count -= (entry >> 8) + (entry & 15)
        damaged = entry == 0 or count < 0
        coefficient = 64 if entry & 0xFF == 0 else coefficient + (entry >> 4 & 15) + 1
    state[BITS], state[COUNT], state[POSITION] = bits, max(count, 0), position
    return DAMAGED if damaged or coefficient > 64 else FULL


@njit(nogil=True, cache=True)
def _look_up(table: NDArray[Any], bits: Any, count: Any) -> Any:
    """Entry of the code that the bits begin with, 0 for none; zeros are put behind the last bit."""
    window = (bits >> (count - 16) if count >= 16 else bits << (16 - count)) & 0xFFFF
    entry = np.int64(table[window >> 16 - SHORT_CODE])
    return entry if entry != 0 else np.int64(table[(1 << SHORT_CODE) + window])


@njit(nogil=True, cache=True)
def _load(data: NDArray[np.uint8], bits: Any, count: Any, position: Any) -> tuple[Any, Any, Any]:
    """Have at least 32 bits ready where the data holds them, leaving out stuffed zeros and stopping at a marker."""
    if count >= 32:
        return bits, count, position
    bits &= (np.int64(1) << count) - 1
    while count <= 48 and position < len(data):
        byte = np.int64(data[position])
        if byte == 0xFF:
            if position + 1 >= len(data) or data[position + 1] != 0:
                break
            position += 1
        position += 1
        bits = bits << 8 | byte
        count += 8
    return bits, count, position


@njit(nogil=True, cache=True)
def _to_marker(data: NDArray[np.uint8], state: NDArray[np.int64]) -> Any:
    """Go on to the next marker; whole bytes that were passed over."""
    end = _scan_end(data, state[POSITION])
    passed = state[COUNT] // 8 + end - state[POSITION]
    state[BITS], state[COUNT], state[POSITION] = 0, 0, end
    return passed


@njit(nogil=True, cache=True)
def _scan_end(data: NDArray[np.uint8], position: int) -> int:
    """Position of the next marker (0xFF and neither a stuffed zero nor another 0xFF)."""
    while position + 1 < len(data) and not (data[position] == 0xFF and data[position + 1] not in (0, 0xFF)):
        position += 1
    return position


@njit(nogil=True, cache=True)
def _take_restart(data: NDArray[np.uint8], state: NDArray[np.int64]) -> bool:
    position = state[POSITION]
    if position + 1 >= len(data) or not 0xD0 <= data[position + 1] <= 0xD7:
        return False
    state[POSITION] = position + 2
    return True
