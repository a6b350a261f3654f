"""Dynamic-range JSON: ``{"tensor_scales": {name: amax}}`` (TAO) and ``{"act_quant_info": {name: amax}}`` (PPQ).

Despite their names both hold amax: TAO's exporter and PPQ's ``TensorRTExporter_JSON`` write ``scale * 127``.
"""

from __future__ import annotations

from collections.abc import Mapping

from calib.core.formats.jsontext import JsonText, dump
from calib.core.formats.text import require_unicode_names
from calib.core.printable import quoted
from calib.errors import FormatError
from calib.types.rangetable import RangeTable, Remark, TensorRange

KEYS: Mapping[str, str] = {"tao-json": "tensor_scales", "ppq-json": "act_quant_info"}


def read(data: bytes, place: str, kind: str) -> RangeTable:
    """Read the JSON of a kind, ``tao-json`` or ``ppq-json``.

    Raises:
        FormatError: with line and column.
    """
    text, key = JsonText(data, place), KEYS[kind]
    if key not in text.content:
        raise text.error((), f"an object with the key {key!r}", text.content)
    entries = text.mapping((key,), text.content[key])
    ranges = {name: TensorRange(name, text.number((key, name), value)) for name, value in entries.items()}
    metadata = {name: value for name, value in text.content.items() if name != key}
    return RangeTable(ranges, kind, place, metadata=metadata, remarks=duplicate_keys(text))


def duplicate_keys(text: JsonText) -> tuple[Remark, ...]:
    """Remark on keys that occur twice in one object; which of them counts is the reader's choice."""
    if not text.repeated:
        return ()
    return (Remark("conflicts", tuple(text.repeated), "occur more than once; readers take either", blocks=True),)


def write(table: RangeTable, kind: str) -> bytes:
    """Write the JSON of a kind.

    Raises:
        FormatError: a name is no UTF-8, or a range is not finite.
    """
    require_unicode_names(table, "JSON")
    return dump({KEYS[kind]: finite_amax(table)})


def finite_amax(table: RangeTable) -> dict[str, float]:
    """Answer amax by name.

    Raises:
        FormatError: one is not finite; JSON has no such number.
    """
    for item in table:
        if item.amax - item.amax != 0:
            raise FormatError(
                f"tensor {quoted(item.name)}", expected="a finite amax", got=repr(item.amax), remedy="calibrate again"
            )
    return {item.name: item.amax for item in table}
