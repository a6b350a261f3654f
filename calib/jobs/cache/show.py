"""``calib cache show``: what is in a calibration cache or another file of ranges. Reads only."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import numpy as np

from calib.core.cachelook import input_fingerprint
from calib.core.formats import trt_cache
from calib.core.formats.registry import FORMATS, QDQ, detect
from calib.core.printable import printable
from calib.core.rangefaults import find_faults, input_ranges
from calib.core.trtcache import CalibrationCache, parse
from calib.edges.tables import read_range_file, table_in
from calib.stages.rangecoverage import parser_made
from calib.types.rangetable import RangeTable, TensorRange

TITLES = {key: item.title for key, item in FORMATS.items()} | {QDQ: "Q/DQ ONNX"}
REPEATED = frozenset({"duplicates", "conflicts"})
NEWLINES = {"\n": "lf", "\r\n": "crlf", "\r": "cr"}
NOTES = {
    "unnamed": "names made up by the TensorRT parser; they hold for one version and graph only",
    "dead": "scale 0; TensorRT 8.6 fails to build with one",
    "nonfinite": "infinite or NaN scale; the tensor is useless in INT8",
    "implausible": "beyond 1e30; float64 read as float32, or uninitialised memory",
    "minute": "next to nothing, but not 0; digits are missing, or integers were read as float32",
    "negative": "negative scale; the file is damaged",
    "duplicates": "names that occur more than once; readers take either",
}


def describe_file(path: str) -> dict[str, Any]:
    """Describe a file of ranges, whatever its format, as one JSON document.

    Raises:
        CalibError: it cannot be read.
    """
    data = read_range_file(path)
    if detect(data, path) == trt_cache.KEY:
        return describe(parse(data, path), path)
    return describe_table(table_in(data, path))


def describe_table(table: RangeTable) -> dict[str, Any]:
    """Describe ranges of another format than a cache as one JSON document."""
    faults, inputs = find_faults(table), input_ranges(table) if table.naming == "tensor" else ()
    repeated = [name for remark in table.remarks if remark.code in REPEATED for name in remark.names]
    names = {
        "unnamed": [item.name for item in table if parser_made(item.name)],
        "dead": faults.dead,
        "nonfinite": faults.nonfinite,
        "implausible": faults.implausible,
        "minute": faults.minute,
        "negative": faults.negative,
        "duplicates": repeated,
    }
    return {
        "file": table.place,
        "format": table.source,
        "metadata": {key: value for key, value in table.metadata.items() if value is not None},
        "entries": [_range(item) for item in table],
        "weights": [printable(item.name) for item in table.weights],
        "input": _fingerprint(inputs[0].name, inputs[0].amax) if inputs else None,
        "findings": {key: [printable(name) for name in found] for key, found in names.items()},
        "remarks": [item.sentence for item in table.remarks],
    }


def _range(item: TensorRange, bits: int | None = None) -> dict[str, Any]:
    scale = item.exact_scale
    bits = int(np.float32(scale).view(np.uint32)) if bits is None else bits
    return {"name": printable(item.name), "amax": _number(item.amax), "scale": _number(scale), "hex": f"{bits:08x}"}


def describe(cache: CalibrationCache, path: str) -> dict[str, Any]:
    """Describe a cache as one JSON document; non-finite numbers become strings."""
    header, found = cache.header, describe_table(trt_cache.table_of(cache, path))
    return {
        "file": path,
        "format": trt_cache.KEY,
        "header": {
            "text": header.text,
            "version": header.version,
            "number": header.number,
            "algorithm": header.algorithm,
            "legacy": header.legacy,
        },
        "newline": NEWLINES[cache.newline],
        "final_newline": cache.final_newline,
        "entries": [_range(TensorRange.of_scale(entry.name, entry.scale), entry.bits) for entry in cache.entries],
        "input": found["input"],
        "findings": found["findings"],
    }


def _fingerprint(name: str, amax: float) -> dict[str, Any]:
    return {"name": printable(name), "amax": _number(amax), **asdict(input_fingerprint(amax))}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def as_text(document: dict[str, Any]) -> str:
    """Lay a description out for people: header, input, table, findings."""
    lines = [*_head_lines(document), "", *_table(document["entries"]), *_finding_lines(document["findings"])]
    return "\n".join(printable(line) for line in lines)


def _head_lines(document: dict[str, Any]) -> list[str]:
    first = document["input"]
    lines = [f"file       {document['file']}"]
    lines += _header_lines(document["header"]) if "header" in document else _format_lines(document)
    lines.append(f"entries    {len(document['entries'])}")
    if first is not None:
        lines.append(f"input      {first['name']}: amax {_figure(first['amax'])}: {first['text']}")
    return lines


def _header_lines(header: dict[str, Any]) -> list[str]:
    version = f"TensorRT {header['version']}" if header["version"] else "TensorRT version not stated"
    lines = [f"header     {header['text']}", f"written by {version}, {header['algorithm'] or 'calibrator not stated'}"]
    if header["legacy"]:
        low, high = header["legacy"]
        lines.append(f"legacy     parameters {low:g} and {high:g}")
    return lines


def _format_lines(document: dict[str, Any]) -> list[str]:
    lines = [f"format     {TITLES[document['format']]}"]
    lines += [
        f"{key:<10} {value}" for key, value in document["metadata"].items() if isinstance(value, str | int | float)
    ]
    lines += [f"weights    {len(document['weights'])} with ranges of their own"] if document["weights"] else []
    return lines + [f"note       {text}" for text in document["remarks"]]


def _figure(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.6g}"


def _table(entries: list[dict[str, Any]]) -> list[str]:
    rows = [(_figure(item["amax"]), item["hex"], item["name"]) for item in entries]
    width = max([len("amax"), *(len(row[0]) for row in rows)])
    return [f"{amax:>{width}}  {bits:8}  {name}" for amax, bits, name in [("amax", "scale", "tensor"), *rows]]


def _finding_lines(found: dict[str, list[str]]) -> list[str]:
    lines: list[str] = []
    for key, names in found.items():
        if names:
            lines += ["", f"{key} ({len(names)}): {NOTES[key]}", *(f"  {name}" for name in names)]
    return lines
