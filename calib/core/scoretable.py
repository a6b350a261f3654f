"""Score tables as values: take rows, join tables, sort."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.types.scores import ScoreTable


def take_rows(table: ScoreTable, rows: NDArray[Any]) -> ScoreTable:
    """Make a table of the given rows (int64 numbers or a mask), in their order."""
    numbers = np.arange(len(table))[rows]
    columns = {name: column[numbers] for name, column in table.columns.items()}
    return ScoreTable(tuple(table.keys[row] for row in numbers), columns, table.class_names, table.thresholds)


def join_tables(tables: Sequence[ScoreTable]) -> ScoreTable:
    """Join tables of the same columns into one, sorted by key.

    Args:
        tables: at least one.
    """
    keys = [key for table in tables for key in table.keys]
    columns = {name: np.concatenate([table.columns[name] for table in tables]) for name in tables[0].columns}
    joined = ScoreTable(tuple(keys), columns, tables[0].class_names, tables[0].thresholds)
    return take_rows(joined, np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))


def canonical_order(table: ScoreTable) -> NDArray[np.int64]:
    """Order the rows by file digest, then key: the same whatever the files are called and however they are listed."""
    digests = table.columns.get("sha256")
    if digests is None:
        return np.array(sorted(range(len(table)), key=table.keys.__getitem__), np.int64)
    return np.array(sorted(range(len(table)), key=lambda row: (str(digests[row]), table.keys[row])), np.int64)


def full_column(table: ScoreTable, name: str, fill: float = 0.0) -> NDArray[np.float64]:
    """Read a column as float64 with NaN and a missing column replaced by ``fill``."""
    if name not in table.columns:
        return np.full(len(table), fill)
    return np.nan_to_num(np.asarray(table.columns[name], np.float64), nan=fill, posinf=fill, neginf=fill)


def has_labels(table: ScoreTable) -> bool:
    """Whether any image has label scores."""
    share = table.columns.get("class_share")
    return share is not None and share.size > 0 and bool(np.isfinite(share).any())
