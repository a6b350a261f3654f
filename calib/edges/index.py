"""The scan index: a score table as Parquet, with the settings that made it, byte for byte reproducible."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from calib.edges.files import read_bytes, write_atomic
from calib.errors import FormatError
from calib.types.scores import ScoreTable

SCHEMA_VERSION = 1
METADATA_KEY = b"calib.index"


@dataclass(frozen=True)
class IndexInfo:
    """Where an index comes from.

    Attributes:
        dataset: name of the manifest.
        split: name of the split.
        root: folder that the keys are relative to, or empty where they share none.
        settings: digest of everything that decides a score; equal digests, equal scores.
    """

    dataset: str = ""
    split: str = ""
    root: str = ""
    settings: str = ""


def write_index(path: Path, table: ScoreTable, info: IndexInfo | None = None) -> None:
    """Write a score table, rows in its order (sorted by key).

    Args:
        path: the Parquet file.
        table: scores.
        info: where it comes from.

    Raises:
        OutputError: the file cannot be written.
    """
    info = info or IndexInfo()
    empty = {name: str(column.dtype) for name, column in table.columns.items() if column.shape[1:] == (0,)}
    metadata = {
        "empty": empty,  # columns without classes, which Parquet cannot hold
        "schema": SCHEMA_VERSION,
        "dataset": info.dataset,
        "split": info.split,
        "root": info.root,
        "settings": info.settings,
        "classes": list(table.class_names),
        "thresholds": {name: table.thresholds[name] for name in sorted(table.thresholds)},
    }
    arrays = {"key": pa.array(table.keys, pa.string())}
    arrays |= {name: _to_arrow(table.columns[name]) for name in sorted(table.columns) if name not in empty}
    written = pa.table(arrays).replace_schema_metadata({METADATA_KEY: json.dumps(metadata, sort_keys=True).encode()})
    sink = io.BytesIO()
    pq.write_table(written, sink, compression="zstd")
    write_atomic(path, sink.getvalue())


def read_index(path: Path) -> ScoreTable:
    """Read a score table.

    Raises:
        ImageError: the file is missing.
        FormatError: it is no index, or one of another schema version.
    """
    return read_index_and_info(path)[0]


def read_index_and_info(path: Path) -> tuple[ScoreTable, IndexInfo]:
    """Read a score table and where it comes from; raises as :func:`read_index`."""
    data = read_bytes(str(path))
    try:
        read = pq.read_table(pa.BufferReader(data))
        metadata = json.loads((read.schema.metadata or {})[METADATA_KEY])
        if metadata["schema"] != SCHEMA_VERSION:
            raise _no_index(path, f"one of schema version {metadata['schema']}")
        return _make_table(read, metadata)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, OSError, KeyError, ValueError, TypeError) as error:
        raise _no_index(path, "another file" if isinstance(error, KeyError) else str(error).splitlines()[0]) from error


def _make_table(read: pa.Table, metadata: dict[str, Any]) -> tuple[ScoreTable, IndexInfo]:
    names = [name for name in read.column_names if name != "key"]
    columns = {name: _to_numpy(read.column(name).combine_chunks()) for name in names}
    columns |= {name: np.zeros((read.num_rows, 0), kind) for name, kind in metadata["empty"].items()}
    thresholds = {name: float(value) for name, value in metadata["thresholds"].items()}
    table = ScoreTable(tuple(read.column("key").to_pylist()), columns, tuple(metadata["classes"]), thresholds)
    return table, IndexInfo(metadata["dataset"], metadata["split"], metadata["root"], metadata["settings"])


def _no_index(path: Path, got: str) -> FormatError:
    return FormatError(
        str(path),
        expected=f"a scan index of schema version {SCHEMA_VERSION}",
        got=got,
        remedy="make one with `calib scan MANIFEST -o INDEX.parquet`",
    )


def _to_arrow(column: np.ndarray[Any, Any]) -> pa.Array:
    if column.ndim == 1:
        return pa.array(column.tolist(), pa.string()) if column.dtype.kind in "UO" else pa.array(column)
    values = pa.array(np.ascontiguousarray(column).reshape(-1))
    return pa.FixedSizeListArray.from_arrays(values, type=pa.list_(values.type, column.shape[1]))


def _to_numpy(column: pa.Array) -> np.ndarray[Any, Any]:
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), str)
    if pa.types.is_fixed_size_list(column.type):
        return np.asarray(column.flatten().to_numpy(zero_copy_only=False)).reshape(-1, column.type.list_size)
    return np.asarray(column.to_numpy(zero_copy_only=False))
