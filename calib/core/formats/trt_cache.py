"""TensorRT calibration caches as tables; the text itself is :mod:`calib.core.trtcache`."""

from __future__ import annotations

from calib.core.formats.text import repeated
from calib.core.trtcache import CalibrationCache, parse, render
from calib.types.rangetable import Order, RangeTable, TensorRange

KEY = "trt-cache"
UNORDERED_BELOW = 6000
"""Header numbers up to TensorRT 5, whose caches follow a hash table, not the network."""


def read(data: bytes, place: str) -> RangeTable:
    """Read a cache; scales come over bit for bit.

    Raises:
        FormatError: with line and column.
    """
    return table_of(parse(data, place), place)


def table_of(cache: CalibrationCache, place: str) -> RangeTable:
    """Make the table of a parsed cache."""
    listed = [TensorRange.of_scale(entry.name, entry.scale) for entry in cache.entries]
    header = cache.header
    metadata = {"header": header.text, "version": header.version, "algorithm": header.algorithm}
    ranges = {item.name: item for item in listed}
    return RangeTable(ranges, KEY, place, order=order_of(cache), metadata=metadata, remarks=repeated(listed))


def order_of(cache: CalibrationCache) -> Order:
    """Tell whether a cache's entries stand in network order, inputs first: they do from TensorRT 6 on."""
    number = cache.header.number
    if cache.header.text == "1" or (number is not None and number < UNORDERED_BELOW):
        return "unknown"
    return "network"


def write(table: RangeTable, version: str, algorithm: str = "EntropyCalibration2") -> bytes:
    """Write a cache for a TensorRT version.

    Raises:
        UsageError: the version or algorithm is none of TensorRT's.
        FormatError: a scale is not finite and positive, or a name cannot stand in a line.
    """
    return render([(item.name, item.exact_scale) for item in table], version, algorithm).render()
