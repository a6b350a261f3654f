"""Dynamic-range text: ``tensor: amax`` a line, as TensorRT's sampleINT8API reads (TensorRT 10.16 samples)."""

from __future__ import annotations

from calib.core.formats.text import (
    ENCODING,
    amax_text,
    malformed,
    read_lines,
    require_line_names,
)
from calib.core.printable import excerpt
from calib.types.rangetable import RangeTable

KEY = "range-text"


def read(data: bytes, place: str) -> RangeTable:
    """Read the text; names may hold colons: the last one separates.

    Raises:
        FormatError: with line and column.
    """
    ranges, remarks = read_lines(data, place, _split)
    return RangeTable(ranges, KEY, place, remarks=remarks)


def _split(line: str, place: str) -> tuple[str, str, int]:
    name, colon, value = line.rpartition(":")
    if not colon or not name.strip():
        raise malformed(f"{place}:1", "a line 'tensor: amax'", excerpt(line))
    number = value.strip(" \t")
    return name.strip(" \t"), number, len(line) - len(number) + 1


def write(table: RangeTable) -> bytes:
    """Write the text, one final newline.

    Raises:
        FormatError: a name cannot stand in a line.
    """
    require_line_names(table, "a dynamic-range text")
    return "".join(f"{item.name}: {amax_text(item)}\n" for item in table).encode(*ENCODING)
