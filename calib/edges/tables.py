"""Files of ranges: read whatever format they are in, Q/DQ ONNX included."""

from __future__ import annotations

from calib.core.formats.registry import QDQ, detect, read_table
from calib.edges.files import read_bytes
from calib.edges.models import load_model
from calib.errors import FormatError, ImageError
from calib.stages.qdqread import read_qdq
from calib.types.rangetable import RangeTable


def read_range_file(path: str) -> bytes:
    """Read the bytes of a file of ranges.

    Raises:
        FormatError: it cannot be read.
    """
    try:
        return read_bytes(path)
    except ImageError as error:
        raise FormatError(
            path, expected="a readable calibration cache", got=error.got, remedy="check the path and its permissions"
        ) from error


def load_table(path: str) -> RangeTable:
    """Read a file of ranges.

    Raises:
        FormatError: it cannot be read, or is none, or is malformed; with line and column.
        ModelError: an ONNX file that is damaged.
        MissingLibraryError: a PyTorch file without PyTorch.
    """
    return table_in(read_range_file(path), path)


def table_in(data: bytes, path: str) -> RangeTable:
    """Read ranges from the bytes of a file, which may be a pipe that can be read once only.

    Raises:
        FormatError: as :func:`load_table`; likewise the others.
    """
    key = detect(data, path)
    return read_qdq(load_model(path, data), path) if key == QDQ else read_table(data, path, key)
