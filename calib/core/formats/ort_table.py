"""Tables of ONNX Runtime's TensorRT provider: ``calibration.flatbuffers``, ``.json`` and the ``name value`` text.

Its own writer stores ``max(highest, lowest)`` in flatbuffers and text, not the largest magnitude: a tensor in
[-84, 45] got 45 (onnxruntime 1.32 quantization/quant_utils.py). The JSON holds both ends and is exact.
"""

from __future__ import annotations

from typing import Any

from calib.core.formats.flatbuffer import read_pairs, write_pairs
from calib.core.formats.jsontext import JsonText, dump
from calib.core.formats.range_json import duplicate_keys, finite_amax
from calib.core.formats.text import (
    ENCODING,
    amax_text,
    malformed,
    read_lines,
    repeated,
    require_line_names,
    require_unicode_names,
    to_number,
)
from calib.core.printable import excerpt
from calib.types.rangetable import RangeTable, Remark, TensorRange

FLATBUFFERS, JSON, TEXT = "ort-flatbuffers", "ort-json", "ort-text"
SIGNED = (
    "ONNX Runtime's own writer stores max(highest, lowest) here, which is too small where the negative side is larger; "
    "its calibration.json holds both"
)


def read_flatbuffers(data: bytes, place: str) -> RangeTable:
    """Read a ``calibration.flatbuffers``.

    Raises:
        FormatError: with the byte offset.
    """
    listed = [
        TensorRange(name, to_number(value.strip(), f"{place}: byte {at}"))
        for name, value, at in read_pairs(data, place)
    ]
    return _signed(RangeTable({item.name: item for item in listed}, FLATBUFFERS, place, remarks=repeated(listed)))


def write_flatbuffers(table: RangeTable) -> bytes:
    """Write a ``calibration.flatbuffers``, sorted by name as ONNX Runtime does.

    Raises:
        FormatError: a name is no UTF-8.
    """
    require_unicode_names(table, "a flatbuffer")
    return write_pairs(sorted((item.name, amax_text(item)) for item in table))


def read_text(data: bytes, place: str) -> RangeTable:
    """Read the ``name value`` text; names may hold blanks: the last one separates.

    Raises:
        FormatError: with line and column.
    """
    ranges, remarks = read_lines(data, place, _split)
    return _signed(RangeTable(ranges, TEXT, place, order="sorted", remarks=remarks))


def _split(line: str, place: str) -> tuple[str, str, int]:
    name, blank, value = line.rpartition(" ")
    if not blank or not name.strip(" \t"):
        raise malformed(f"{place}:1", "a line 'tensor amax'", excerpt(line))
    return name, value, len(name) + 2


def write_text(table: RangeTable) -> bytes:
    """Write the ``name value`` text, sorted by name as ONNX Runtime does.

    Raises:
        FormatError: a name cannot stand in a line.
    """
    require_line_names(table, "a text table")
    lines = sorted((item.name, amax_text(item)) for item in table)
    return "".join(f"{name} {value}\n" for name, value in lines).encode(*ENCODING)


def _signed(table: RangeTable) -> RangeTable:
    table = table.remarked(Remark("signed_maximum", (), SIGNED))
    lost = tuple(item.name for item in table if str(item.amax).startswith("-"))
    text = "hold a negative maximum: the range of their negative side is lost"
    return table.remarked(Remark("lost_negative_side", lost, text, blocks=True)) if lost else table


def read_json(data: bytes, place: str) -> RangeTable:
    """Read a ``calibration.json``: today's ``TensorsData``, or the older ``{name: [lowest, highest]}``.

    Raises:
        FormatError: with line and column.
    """
    text = JsonText(data, place)
    path = ("data",) if text.content.get("CLS") == "TensorsData" else ()
    entries = text.mapping(path, text.content.get("data") if path else text.content)
    ranges = {name: TensorRange(name, _amax(text, (*path, name), value)) for name, value in entries.items()}
    method = text.content.get("calibration_method") if path else None
    metadata = {"method": method.get("value")} if isinstance(method, dict) else {}
    return RangeTable(ranges, JSON, place, metadata=metadata, remarks=duplicate_keys(text))


def _amax(text: JsonText, path: tuple[str, ...], value: Any) -> float:
    """Take the larger magnitude of a tensor's two ends."""
    if isinstance(value, float):
        return abs(value)
    ends = _ends(value)
    if ends is None:
        raise text.error(path, "the lowest and the highest value of a tensor", value)
    low, high = (_plain(end) for end in ends)
    if not (isinstance(low, float) and isinstance(high, float)):
        raise text.error(path, "two numbers", value)
    return max(abs(low), abs(high))


def _ends(value: Any) -> tuple[Any, Any] | None:
    if isinstance(value, dict) and {"lowest", "highest"} <= set(value):
        return value["lowest"], value["highest"]
    if isinstance(value, list) and len(value) == 2:
        return value[0], value[1]
    return None


def _plain(value: Any) -> Any:
    """Unwrap a number that was written as a numpy array of one element."""
    for _ in range(4):
        if isinstance(value, dict) and "data" in value:
            value = value["data"]
        elif isinstance(value, list) and len(value) == 1:
            value = value[0]
    return value


def write_json(table: RangeTable) -> bytes:
    """Write a ``calibration.json`` that ONNX Runtime's quantization tools load: ``lowest = -highest``.

    Raises:
        FormatError: a name is no UTF-8, or a range is not finite.
    """
    require_unicode_names(table, "JSON")
    data = {
        name: {"lowest": -amax, "highest": amax, "CLS": "TensorData"}
        for name, amax in sorted(finite_amax(table).items())
    }
    method = {"CLS": "CalibrationMethod", "value": "CalibrationMethod.MinMax"}
    return dump({"CLS": "TensorsData", "data": data, "calibration_method": method})
