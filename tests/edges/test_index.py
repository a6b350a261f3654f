"""The scan index: what is written comes back, in the same bytes every time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calib.edges.index import METADATA_KEY, IndexInfo, read_index, read_index_and_info, write_index
from calib.errors import FormatError, ImageError
from tests.scoretables import make_table


@pytest.mark.parametrize("labels", [True, False])
@pytest.mark.parametrize("images", [0, 1, 33])
def test_round_trip(tmp_path, labels, images):
    table, info = make_table(images, labels=labels), IndexInfo("set", "train", "/data", "abc")
    write_index(tmp_path / "i.parquet", table, info)
    read, found = read_index_and_info(tmp_path / "i.parquet")
    assert (read.keys, read.class_names, found) == (table.keys, table.class_names, info)
    assert dict(read.thresholds) == dict(table.thresholds)
    assert set(read.columns) == set(table.columns)
    for name, column in table.columns.items():
        assert read.columns[name].shape == column.shape, name
        np.testing.assert_array_equal(read.columns[name], column)
        if images:
            assert read.columns[name].dtype.kind == column.dtype.kind


def test_same_table_same_bytes(tmp_path):
    for name in ("a", "b"):
        write_index(tmp_path / name, make_table(50))
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_tools_can_read_it(tmp_path):
    write_index(tmp_path / "i.parquet", make_table(5))
    read = pq.read_table(tmp_path / "i.parquet")
    assert read.column("key").to_pylist()[0] == "images/0000.jpg"
    assert pa.types.is_fixed_size_list(read.schema.field("class_share").type)


def test_what_is_no_index_says_so(tmp_path):
    text, other = tmp_path / "text", tmp_path / "other.parquet"
    text.write_bytes(b"<html>not found</html>" * 20)
    pq.write_table(pa.table({"key": ["a"]}), other)
    newer = tmp_path / "newer.parquet"
    pq.write_table(pa.table({"key": ["a"]}).replace_schema_metadata({METADATA_KEY: b'{"schema": 99}'}), newer)
    for path in (text, other, newer):
        with pytest.raises(FormatError, match="calib scan"):
            read_index(path)
    with pytest.raises(ImageError):
        read_index(tmp_path / "missing.parquet")
