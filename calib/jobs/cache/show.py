"""``calib cache show``: what is in a calibration cache. Reads only."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from calib.core.cachelook import findings, input_entry, input_fingerprint
from calib.core.trtcache import CacheEntry, CalibrationCache, parse
from calib.edges.files import read_bytes
from calib.errors import FormatError, ImageError

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
    try:
        data = read_bytes(path)
    except ImageError as error:
        raise FormatError(
            path, expected="a readable calibration cache", got=error.got, remedy="check the path and its permissions"
        ) from error
    return parse(data, path)


def describe(cache: CalibrationCache, path: str) -> dict[str, Any]:
    """Describe a cache as one JSON document; non-finite numbers become strings."""
    header, first = cache.header, input_entry(cache)
    return {
        "file": path,
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
        "input": None if first is None else _input(first),
        "findings": {key: [_safe(name) for name in names] for key, names in _findings(cache).items()},
    }


def _findings(cache: CalibrationCache) -> dict[str, tuple[str, ...]]:
    return dataclasses.asdict(findings(cache))


def _entry(entry: CacheEntry) -> dict[str, Any]:
    return {
        "name": _safe(entry.name),
        "amax": _number(entry.amax),
        "scale": _number(entry.scale),
        "hex": f"{entry.bits:08x}",
    }


def _input(entry: CacheEntry) -> dict[str, Any]:
    found = input_fingerprint(entry.amax)
    return {"name": _safe(entry.name), "amax": _number(entry.amax), **dataclasses.asdict(found)}


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def _safe(name: str) -> str:
    """Make a name printable: bytes that are no UTF-8 and control characters are escaped."""
    text = name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def as_text(document: dict[str, Any]) -> str:
    """Lay a description out for people: header, input, table, findings."""
    return "\n".join([*_head_lines(document), "", *_table(document["entries"]), *_finding_lines(document["findings"])])


def _head_lines(document: dict[str, Any]) -> list[str]:
    header, first = document["header"], document["input"]
    version = f"TensorRT {header['version']}" if header["version"] else "TensorRT version not stated"
    lines = [
        f"file       {document['file']}",
        f"header     {header['text']}",
        f"written by {version}, {header['algorithm'] or 'calibrator not stated'}",
        f"entries    {len(document['entries'])}",
    ]
    if header["legacy"]:
        low, high = header["legacy"]
        lines.append(f"legacy     parameters {low:g} and {high:g}")
    if first is not None:
        lines.append(f"input      {first['name']}: amax {_figure(first['amax'])}: {first['text']}")
    return lines


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
