"""TensorRT calibration caches as tables; the text itself is :mod:`calib.core.trtcache`."""

from __future__ import annotations

from calib.core.cachelook import in_network_order
from calib.core.formats.text import repeated
from calib.core.trtcache import CalibrationCache, parse, render
from calib.types.rangetable import Order, RangeTable, TensorRange

KEY = "trt-cache"


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
    order: Order = "network" if in_network_order(cache) else "unknown"
    return RangeTable(ranges, KEY, place, order=order, metadata=metadata, remarks=repeated(listed))


def write(table: RangeTable, version: str, algorithm: str = "EntropyCalibration2") -> bytes:
    """Write a cache for a TensorRT version.

    Raises:
        UsageError: the version or algorithm is none of TensorRT's.
        FormatError: a scale is not finite and positive, or a name cannot stand in a line.
    """
    return render([(item.name, item.exact_scale) for item in table], version, algorithm).render()
