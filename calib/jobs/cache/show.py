"""``calib cache show``: what is in a calibration cache or another file of ranges. Reads only."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

from calib.core.cachelook import findings, input_entry, input_fingerprint
from calib.core.formats import trt_cache
from calib.core.formats.registry import FORMATS, QDQ, detect
from calib.core.printable import printable
from calib.core.rangefaults import find_faults, input_ranges
from calib.core.trtcache import CacheEntry, CalibrationCache, parse
from calib.edges.tables import load_table, read_range_file
from calib.stages.rangecoverage import parser_made
from calib.types.rangetable import RangeTable, TensorRange

TITLES = {key: item.title for key, item in FORMATS.items()} | {QDQ: "Q/DQ ONNX"}
REPEATED = frozenset({"duplicates", "conflicts"})
NOTES = {
    "unnamed": "names made up by the TensorRT parser; they hold for one version and graph only",
    "dead": "scale 0; TensorRT 8.6 fails to build with one",
    "nonfinite": "infinite or NaN scale; the tensor is useless in INT8",
    "negative": "negative scale; the file is damaged",
    "duplicates": "names that occur more than once; readers take either",
}


def load_cache(path: str) -> CalibrationCache:
    """Read and parse a cache file.

    Raises:
        FormatError: it cannot be read or is no cache.
    """
    return parse(read_range_file(path), path)


def describe_file(path: str) -> dict[str, Any]:
    """Describe a file of ranges, whatever its format, as one JSON document.

    Raises:
        CalibError: it cannot be read.
    """
    data = read_range_file(path)
    if detect(data, path) == trt_cache.KEY:
        return describe(parse(data, path), path)
    return describe_table(load_table(path))


def describe_table(table: RangeTable) -> dict[str, Any]:
    """Describe ranges of another format than a cache as one JSON document."""
    faults, inputs = find_faults(table), input_ranges(table) if table.naming == "tensor" else ()
    repeated = [name for remark in table.remarks if remark.code in REPEATED for name in remark.names]
    names = {
        "unnamed": [item.name for item in table if parser_made(item.name)],
        "dead": faults.dead,
        "nonfinite": faults.nonfinite,
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
        "remarks": [f"{len(item.names)} {item.text}" if item.names else item.text for item in table.remarks],
    }


def _range(item: TensorRange) -> dict[str, Any]:
    scale = item.exact_scale
    bits = int(np.float32(scale).view(np.uint32))
    return {"name": printable(item.name), "amax": _number(item.amax), "scale": _number(scale), "hex": f"{bits:08x}"}


def describe(cache: CalibrationCache, path: str) -> dict[str, Any]:
    """Describe a cache as one JSON document; non-finite numbers become strings."""
    header, first = cache.header, input_entry(cache)
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
        "newline": "crlf" if cache.newline == "\r\n" else "lf",
        "final_newline": cache.final_newline,
        "entries": [_entry(entry) for entry in cache.entries],
        "input": None if first is None else _fingerprint(first.name, first.amax),
        "findings": {key: [printable(name) for name in names] for key, names in _findings(cache).items()},
    }


def _findings(cache: CalibrationCache) -> dict[str, tuple[str, ...]]:
    return dataclasses.asdict(findings(cache))


def _entry(entry: CacheEntry) -> dict[str, Any]:
    return {
        "name": printable(entry.name),
        "amax": _number(entry.amax),
        "scale": _number(entry.scale),
        "hex": f"{entry.bits:08x}",
    }


def _fingerprint(name: str, amax: float) -> dict[str, Any]:
    return {"name": printable(name), "amax": _number(amax), **dataclasses.asdict(input_fingerprint(amax))}


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
