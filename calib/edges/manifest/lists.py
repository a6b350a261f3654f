"""Lists of images: CSV, JSON lines and Parquet tables, and text files with a name a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from calib.edges.files import read_bytes
from calib.errors import CalibError, ManifestError

TABLES = frozenset({".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq"})
Row = dict[str, str]


def is_table(path: str) -> bool:
    """Whether a file is a list with columns, by its name."""
    return Path(path).suffix.lower() in TABLES


def read_table(path: str) -> list[Row]:
    """Read a list with columns; every cell as text, missing cells as ``""``.

    Raises:
        ManifestError: the file cannot be read, has no rows, or no ``image`` column.
    """
    suffix = Path(path).suffix.lower()
    read = {".csv": _read_csv, ".tsv": _read_csv, ".parquet": _read_parquet, ".pq": _read_parquet}
    try:
        rows = [_as_text(row) for row in read.get(suffix, _read_json_lines)(path, read_bytes(path))]
    except ManifestError:
        raise
    except CalibError as error:
        raise ManifestError(path, expected=error.expected, got=error.got, remedy=error.remedy) from error
    if not rows:
        raise _bad_list(path, "at least one row", "none")
    if "image" not in rows[0]:
        raise _bad_list(path, "a column 'image' (and 'label')", "columns " + ", ".join(rows[0]))
    return rows


def read_lines(path: str) -> list[str]:
    """Read a text file with a name a line; blank lines and ``#`` comments are left out.

    Raises:
        ManifestError: the file cannot be read, or is empty.
    """
    try:
        text = _decode(path, read_bytes(path))
    except ManifestError:
        raise
    except CalibError as error:
        raise ManifestError(path, expected=error.expected, got=error.got, remedy=error.remedy) from error
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise _bad_list(path, "a name a line", "none")
    return lines


def _decode(path: str, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad_list(path, "UTF-8 text", f"byte {data[error.start]:#04x} at offset {error.start}") from error


def _read_csv(path: str, data: bytes) -> Iterable[dict[str, Any]]:
    text = _decode(path, data)
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if None in row or None in row.values():
                columns = len(reader.fieldnames or ())
                raise _bad_list(f"{path}, line {reader.line_num}", f"{columns} columns", "another number of them")
            yield row
    except csv.Error as error:
        raise _bad_list(f"{path}, line {reader.line_num}", "CSV", str(error)) from error


def _read_json_lines(path: str, data: bytes) -> Iterable[dict[str, Any]]:
    import msgspec

    for number, line in enumerate(data.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _bad_list(f"{path}, line {number}", "one JSON object a line", str(error)) from error


def _read_parquet(path: str, data: bytes) -> Iterable[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(pyarrow.BufferReader(data))
    except (pyarrow.ArrowException, OSError) as error:
        raise _bad_list(path, "a Parquet file", str(error)) from error
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _as_text(row: dict[str, Any]) -> Row:
    return {str(key).strip(): "" if value is None else str(value).strip() for key, value in row.items()}


def _bad_list(place: str, expected: str, got: str) -> ManifestError:
    return ManifestError(
        place, expected=expected, got=got, remedy="correct the list; docs/manifests.md shows what it may hold"
    )
