"""Statistics as the arrays of a ``statistics.npz``, and back: the file that two builds can be merged from."""

from __future__ import annotations

import io
import json
import zipfile
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import FormatError
from calib.types.statistics import TensorStatistics

SCHEMA = 1
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The time written for every member, so that equal statistics are equal bytes."""

UNREADABLE = (
    ValueError, KeyError, IndexError, TypeError, OverflowError, OSError, EOFError, RuntimeError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip
"""What a damaged archive makes its readers raise."""


def pack(statistics: Mapping[str, TensorStatistics], about: Mapping[str, Any]) -> bytes:
    """Render statistics as a compressed ``.npz``.

    Members: ``names`` (JSON, UTF-8 bytes), ``about`` (JSON), ``count``, ``nonfinite`` (int64 [T]), ``extrema``
    (float64 [T, 2]), ``exponent`` (int64 [T]), ``bins`` (int64 [T]), ``negative`` and ``positive`` (int64, the tensors'
    bins one after the other), ``channel_axis`` (int64 [T], -1 for none), ``channels`` (int64 [T]),
    ``channel_minimum`` and ``channel_maximum`` (float32, one after the other), ``tails`` (int64 [T], their lengths) and
    ``tail`` (float32, one after the other).

    Args:
        statistics: by tensor name.
        about: JSON-serialisable description kept beside them.
    """
    items = list(statistics.values())
    arrays: dict[str, NDArray[Any]] = {
        "names": _json_bytes([item.name for item in items]),
        "about": _json_bytes({"schema": SCHEMA, **about}),
        "count": np.array([item.count for item in items], np.int64),
        "nonfinite": np.array([item.nonfinite for item in items], np.int64),
        "extrema": np.array([(item.minimum, item.maximum) for item in items], np.float64).reshape(-1, 2),
        "exponent": np.array([item.exponent for item in items], np.int64),
        "bins": np.array([item.positive.size for item in items], np.int64),
        "negative": _joined([item.negative for item in items], np.int64),
        "positive": _joined([item.positive for item in items], np.int64),
        "channel_axis": np.array([-1 if item.channel_axis is None else item.channel_axis for item in items], np.int64),
        "channels": np.array([item.channel_minimum.size for item in items], np.int64),
        "channel_minimum": _joined([item.channel_minimum for item in items], np.float32),
        "channel_maximum": _joined([item.channel_maximum for item in items], np.float32),
        "tails": np.array([item.tail.size for item in items], np.int64),
        "tail": _joined([item.tail for item in items], np.float32),
    }
    return zip_arrays(arrays)


def unpack(data: bytes, place: str) -> tuple[dict[str, TensorStatistics], dict[str, Any]]:
    """Read what :func:`pack` rendered.

    Args:
        data: the file's bytes.
        place: what to call the file in messages.

    Raises:
        FormatError: the file is not such a file, is cut short, or has a newer schema.
    """
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        about = json.loads(arrays["about"].tobytes())
        if about["schema"] != SCHEMA:
            raise ValueError(f"schema {about['schema']}")
        return _unpacked(arrays), about
    except UNREADABLE as error:
        raise FormatError(
            place,
            expected=f"statistics of schema {SCHEMA}, as `calib build` writes them",
            got=str(error) or type(error).__name__,
            remedy="delete the file and build again",
        ) from error


def _unpacked(arrays: Mapping[str, NDArray[Any]]) -> dict[str, TensorStatistics]:
    names = json.loads(arrays["names"].tobytes())
    bins, channels, tails = (np.concatenate([[0], np.cumsum(arrays[name])]) for name in ("bins", "channels", "tails"))
    found = {}
    for index, name in enumerate(names):
        histogram, extrema = slice(bins[index], bins[index + 1]), slice(channels[index], channels[index + 1])
        axis = int(arrays["channel_axis"][index])
        found[name] = TensorStatistics(
            name=name,
            count=int(arrays["count"][index]),
            nonfinite=int(arrays["nonfinite"][index]),
            minimum=float(arrays["extrema"][index, 0]),
            maximum=float(arrays["extrema"][index, 1]),
            exponent=int(arrays["exponent"][index]),
            negative=_read_only(arrays["negative"][histogram]),
            positive=_read_only(arrays["positive"][histogram]),
            channel_axis=None if axis < 0 else axis,
            channel_minimum=_read_only(arrays["channel_minimum"][extrema]),
            channel_maximum=_read_only(arrays["channel_maximum"][extrema]),
            tail=_read_only(arrays["tail"][tails[index] : tails[index + 1]]),
        )
    return found


def _json_bytes(value: Any) -> NDArray[np.uint8]:
    return np.frombuffer(json.dumps(value, sort_keys=True).encode(), np.uint8)


def _joined(parts: list[NDArray[Any]], dtype: Any) -> NDArray[Any]:
    return np.concatenate(parts).astype(dtype) if parts else np.empty(0, dtype)


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    array.flags.writeable = False
    return array


def zip_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Render arrays as a compressed ``.npz``: the same bytes for the same arrays in the same order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name, array in arrays.items():
            member = io.BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", EPOCH)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, member.getvalue())
    return buffer.getvalue()
