"""ONNX Runtime's ``TrtTable`` as a flatbuffer: reading that checks every offset, and writing.

Schema (onnxruntime/core/providers/shared_library, ``cal_table.fbs``):
``table KeyValue { key: string; value: string; }  table TrtTable { dict: [KeyValue]; }  root_type TrtTable``.
The layout is that of flatbuffers' "Internals" page: little-endian offsets, each table pointing back at its vtable.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

from calib.core.formats.text import malformed

EXPECTED = "a calibration.flatbuffers of ONNX Runtime (TrtTable)"
SHARING = 16
"""Strings may share bytes; beyond this many times the file's size it is a bomb, not a table."""

_U32, _I32, _U16 = struct.Struct("<I"), struct.Struct("<i"), struct.Struct("<H")


class _Reader:
    def __init__(self, data: bytes, place: str) -> None:
        self.data = data
        self.place = place
        self.budget = SHARING * len(data) + 1024

    def unpack(self, form: struct.Struct, at: int, what: str) -> int:
        size = len(self.data)
        if at < 0 or at + form.size > size:
            raise malformed(f"{self.place}: byte {min(max(at, 0), size)}", EXPECTED, f"{what} outside its {size} bytes")
        return int(form.unpack_from(self.data, at)[0])

    def follow(self, at: int, what: str) -> int:
        return at + self.unpack(_U32, at, what)

    def field(self, table: int, index: int) -> int | None:
        """Find a table's field; None where the table leaves it out."""
        vtable = table - self.unpack(_I32, table, "a table")
        size = self.unpack(_U16, vtable, "a table's layout")
        entry = 4 + 2 * index
        offset = self.unpack(_U16, vtable + entry, "a table's layout") if entry + 2 <= size else 0
        return table + offset if offset else None

    def string(self, at: int, what: str) -> str:
        start = self.follow(at, what)
        length = self.unpack(_U32, start, what)
        self.budget -= length
        raw = self.data[start + 4 : start + 4 + length]
        if len(raw) < length or self.budget < 0:
            raise malformed(f"{self.place}: byte {start}", EXPECTED, f"{what} of {length} bytes")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            got = f"{what} that is no UTF-8"
            raise malformed(f"{self.place}: byte {start + 4 + error.start}", EXPECTED, got) from error


def read_pairs(data: bytes, place: str) -> Iterator[tuple[str, str, int]]:
    """Read a table's keys and values in file order, with the byte offset of each entry.

    Raises:
        FormatError: an offset or a length leads out of the file, or a field is missing; with the byte offset.
    """
    reader = _Reader(data, place)
    root = reader.follow(0, "the root")
    vector = reader.field(root, 0)
    if vector is None:
        raise malformed(f"{place}: byte {root}", EXPECTED, "a table without dict")
    start = reader.follow(vector, "the list of entries")
    count = reader.unpack(_U32, start, "the list of entries")
    if start + 4 + 4 * count > len(data):
        raise malformed(f"{place}: byte {start}", EXPECTED, f"a list of {count} entries in {len(data)} bytes")
    for index in range(count):
        yield _entry(reader, reader.follow(start + 4 + 4 * index, "an entry"))


def _entry(reader: _Reader, table: int) -> tuple[str, str, int]:
    key, value = (reader.field(table, index) for index in (0, 1))
    if key is None or value is None:
        missing = "key" if key is None else "value"
        raise malformed(f"{reader.place}: byte {table}", EXPECTED, f"an entry without {missing}")
    return reader.string(key, "a tensor name"), reader.string(value, "a range"), table


def write_pairs(pairs: Iterable[tuple[str, str]]) -> bytes:
    """Write keys and values, in the order given; names must be valid Unicode.

    Front to back: root offset, root table and its vtable, the vector, then an entry's table and its two strings.
    All entries share one vtable. Every string ends in a zero byte and every object lies at a multiple of four.
    """
    listed = list(pairs)
    # root offset 4 | vtable 6 + 2 of padding | root table: soffset 4, dict 4 | entry vtable 8 | vector
    head = struct.pack("<I HHH2x iI HHHH", 12, 6, 8, 4, 8, 12, 8, 12, 4, 8)
    entry_vtable, vector = 20, 28
    position = vector + 4 + 4 * len(listed)
    offsets, bodies = [], []
    for index, (key, value) in enumerate(listed):
        texts = [_string(key), _string(value)]
        offsets.append(position - (vector + 4 + 4 * index))
        second = 12 - 8 + len(texts[0])
        bodies.append(struct.pack("<iII", position - entry_vtable, 8, second) + b"".join(texts))
        position += len(bodies[-1])
    return head + struct.pack(f"<I{len(listed)}I", len(listed), *offsets) + b"".join(bodies)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<I", len(raw)) + raw + b"\0" * (4 - len(raw) % 4)
