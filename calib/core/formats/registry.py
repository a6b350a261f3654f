"""The formats by key, and which one a file is in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import PurePath

from calib.core.fileformats import foreign_format
from calib.core.formats import ort_table, range_json, range_text, statedict, torchfile, trt_cache
from calib.core.trtcache import ALGORITHMS, reads_caches
from calib.errors import FormatError, UsageError
from calib.types.rangetable import Naming, RangeTable

QDQ = "qdq-onnx"


@dataclass(frozen=True)
class WriteOptions:
    """What some formats need to be told.

    Attributes:
        trt_version: TensorRT version a cache is headed for.
        algorithm: calibrator class named in a cache's header.
    """

    trt_version: str = "10.14.1"
    algorithm: str = "EntropyCalibration2"


@dataclass(frozen=True)
class TableFormat:
    """A format.

    Attributes:
        key: its name on the command line.
        title: what it is.
        suffixes: of file names that mean this format; the first of its list is its own.
        read: from bytes and place.
        write: to bytes.
        naming: whether its names are tensors' or modules'.
    """

    key: str
    title: str
    suffixes: tuple[str, ...]
    read: Callable[[bytes, str], RangeTable]
    write: Callable[[RangeTable, WriteOptions], bytes]
    naming: Naming = "tensor"


def options_like(table: RangeTable, trt_version: str | None, algorithm: str | None) -> WriteOptions:
    """Choose the header of a cache: as asked for, else that of the cache the ranges come from, else the default."""
    default, own = WriteOptions(), table.metadata
    version = own.get("version") if table.source == trt_cache.KEY else None
    version = version if version and reads_caches(version) else None
    kept = own.get("algorithm") if version and own.get("algorithm") in ALGORITHMS else None
    return WriteOptions(str(trt_version or version or default.trt_version), str(algorithm or kept or default.algorithm))


def _plain(write: Callable[[RangeTable], bytes]) -> Callable[[RangeTable, WriteOptions], bytes]:
    return lambda table, _: write(table)


def _cache(table: RangeTable, options: WriteOptions) -> bytes:
    return trt_cache.write(table, options.trt_version, options.algorithm)


def _json(kind: str, title: str) -> TableFormat:
    write = _plain(partial(range_json.write, kind=kind))
    return TableFormat(kind, title, (), partial(range_json.read, kind=kind), write)


def _state(kind: str, title: str, suffixes: tuple[str, ...]) -> TableFormat:
    write = _plain(partial(statedict.write, kind=kind))
    return TableFormat(kind, title, suffixes, partial(statedict.read, kind=kind), write, "module")


_LISTED = (
    TableFormat(trt_cache.KEY, "TensorRT calibration cache", (".cache", ".calib"), trt_cache.read, _cache),
    TableFormat(
        ort_table.FLATBUFFERS,
        "ONNX Runtime TensorRT-provider table, flatbuffers",
        (".flatbuffers",),
        ort_table.read_flatbuffers,
        _plain(ort_table.write_flatbuffers),
    ),
    TableFormat(ort_table.JSON, "ONNX Runtime calibration.json", (), ort_table.read_json, _plain(ort_table.write_json)),
    TableFormat(ort_table.TEXT, "ONNX Runtime text table", (), ort_table.read_text, _plain(ort_table.write_text)),
    TableFormat(
        range_text.KEY, "dynamic-range text (sampleINT8API)", (".txt",), range_text.read, _plain(range_text.write)
    ),
    _json("tao-json", "dynamic-range JSON (TAO, tensor_scales)"),
    _json("ppq-json", "dynamic-range JSON (PPQ, act_quant_info)"),
    _state(statedict.NPZ, "_amax state dict as npz", (".npz",)),
    _state(statedict.SAFETENSORS, "_amax state dict as safetensors", (".safetensors",)),
    TableFormat(
        statedict.TORCH,
        "_amax state dict of PyTorch (pytorch-quantization, ModelOpt)",
        (".pt", ".pth"),
        torchfile.read,
        _plain(torchfile.write),
        "module",
    ),
)
FORMATS: Mapping[str, TableFormat] = {item.key: item for item in _LISTED}
KEYS = (*FORMATS, QDQ)
"""Every format, Q/DQ ONNX included, which is a network and not a table."""


def detect(data: bytes, place: str) -> str:
    """Find the format of a file by its content.

    Returns:
        one of :data:`KEYS`; an ONNX file counts as ``qdq-onnx`` whether or not it holds Q/DQ pairs.

    Raises:
        FormatError: it is none of them; what it is, is named.
    """
    found = foreign_format(data)
    if found is None:
        return trt_cache.KEY
    if found.key:
        return found.key
    raise FormatError(f"{place}:1:1", expected="a file of ranges", got=found.what, remedy=found.remedy)


def read_table(data: bytes, place: str, key: str | None = None) -> RangeTable:
    """Read a file of ranges; for Q/DQ ONNX see :mod:`calib.stages.qdqread`.

    Args:
        data: the file's bytes.
        place: the file.
        key: its format; None finds out.

    Raises:
        FormatError: malformed, with line and column (or byte offset), or Q/DQ ONNX.
    """
    key = key or detect(data, place)
    if key == QDQ:
        raise FormatError(place, expected="a table of ranges", got="an ONNX model", remedy="load it as a network")
    return FORMATS[key].read(data, place)


def format_of_name(path: str, asked: str | None) -> str:
    """Choose the format to write: the one asked for, else the one the file's suffix means.

    Raises:
        UsageError: no such format, or the suffix does not tell.
    """
    if asked is not None:
        if asked in KEYS:
            return asked
        raise UsageError(f"--to {asked}", expected=f"one of {', '.join(KEYS)}", got=repr(asked), remedy="name one")
    name = PurePath(path).name.lower()
    if name.endswith(".onnx"):
        return QDQ
    if name == "calibration.json":
        return ort_table.JSON
    found = next((item.key for item in _LISTED if name.endswith(item.suffixes)), None) if name else None
    if found is None:
        raise UsageError(
            f"-o {path}",
            expected="a suffix that tells the format",
            got=repr(PurePath(path).suffix or PurePath(path).name),
            remedy=f"name it with --to, one of {', '.join(KEYS)}",
        )
    return found
