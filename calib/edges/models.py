"""ONNX files: loading with an error that says what the file really is, saving atomically at any size."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sized
from pathlib import Path
from typing import IO

import onnx
from onnx import external_data_helper

from calib.core.graph.sparse import make_dense
from calib.core.graph.structure import all_tensors, unreadable_name
from calib.edges.files import output_errors, temporary_sibling, write_atomic
from calib.errors import ModelError

HEAD = 4096
PROTOBUF_LIMIT = 2_000_000_000
"""Largest file written as one protobuf message; the format ends at 2 GiB."""
ALIGNMENT = 4096
EXTERNAL_MINIMUM = 1024

RAW_BYTES: Mapping[int, int] = {
    onnx.TensorProto.FLOAT: 4, onnx.TensorProto.DOUBLE: 8, onnx.TensorProto.FLOAT16: 2, onnx.TensorProto.BFLOAT16: 2,
    onnx.TensorProto.INT64: 8, onnx.TensorProto.INT32: 4, onnx.TensorProto.INT16: 2, onnx.TensorProto.INT8: 1,
    onnx.TensorProto.UINT64: 8, onnx.TensorProto.UINT32: 4, onnx.TensorProto.UINT16: 2, onnx.TensorProto.UINT8: 1,
    onnx.TensorProto.BOOL: 1,
}  # fmt: skip
"""Bytes of an element in ``raw_data``, of the types whose elements are whole bytes."""

SIGNATURES: tuple[tuple[int, bytes, str, str], ...] = (
    (0, b"version https://git-lfs", "a git-lfs pointer, not the model itself", "run `git lfs pull` where it came from"),
    (0, b"PK\x03\x04", "a zip archive (a PyTorch or Keras file)", "export the network with torch.onnx.export first"),
    (0, b"\x89HDF", "an HDF5 file (Keras weights)", "convert it with tf2onnx first"),
    (0, b"\x80\x02", "a Python pickle (an old PyTorch file)", "export the network with torch.onnx.export first"),
    (4, b"TFL3", "a TensorFlow Lite model", "convert it with tf2onnx --tflite first"),
    (4, b"ORTM", "an ONNX Runtime .ort model", "use the .onnx model that it was made from"),
    (0, b"ptrt", "a TensorRT engine", "use the ONNX model that it was built from"),
    (0, b"ftrt", "a TensorRT engine", "use the ONNX model that it was built from"),
    (0, b"\x1f\x8b", "a gzip archive", "unpack it first"),
    (0, b"%PDF", "a PDF document", "download the model itself"),
)
NOT_ONNX = "check the download; an ONNX file is a binary protobuf written by an exporter"


def load_model(path: str | os.PathLike[str], data: bytes | None = None) -> onnx.ModelProto:
    """Load an ONNX file, external data included, whatever its extension; sparse initialisers become dense ones.

    Args:
        path: the file; external data lies beside it.
        data: its bytes where they were read already, as from a pipe.

    Raises:
        ModelError: the file is missing, is something else (named where it can be), is cut short, holds no
            network, needs a newer onnx, or its external data is missing, cut short or outside its folder.
    """
    place = Path(path)
    data = _read(place) if data is None else data
    _refuse_other_kinds(place, data[:HEAD])
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:
        raise _unreadable(place, data) from error
    _refuse_empty(place, model)
    _refuse_newer(place, model)
    _refuse_odd_names(place, model)
    _load_external(place, model)
    _refuse_damaged(place, model)
    make_dense(model.graph)
    return model


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise ModelError(str(path), expected="an ONNX file", got="a folder", remedy="name the .onnx file inside it")
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ModelError(
            str(path), expected="a readable ONNX file", got=reason, remedy="check the path and its permissions"
        ) from error


def _refuse_other_kinds(path: Path, head: bytes) -> None:
    kind = _kind(head)
    if kind is not None:
        raise ModelError(str(path), expected="an ONNX model", got=kind[0], remedy=kind[1])


def _kind(head: bytes) -> tuple[str, str] | None:
    """Recognise what is not ONNX by its first bytes: what it is, and the remedy."""
    if not head:
        return "an empty file", NOT_ONNX
    for offset, magic, what, remedy in SIGNATURES:
        if head[offset : offset + len(magic)] == magic:
            return what, remedy
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html", b"<head")):
        return "an HTML page", "the download saved a web page; fetch the raw file (or log in) and try again"
    if start.startswith(b"<?xml"):
        return "an XML file (an OpenVINO IR?)", "use the ONNX model that it was converted from"
    if start.startswith((b"{", b"[")) and head.isascii():
        return "a JSON text", NOT_ONNX
    return ("a text file", NOT_ONNX) if _is_text(head) else None


def _is_text(head: bytes) -> bool:
    return len(head) >= 8 and all(byte in b"\t\r\n" or 32 <= byte < 127 for byte in head)


def _unreadable(path: Path, data: bytes) -> ModelError:
    if len(data) >= PROTOBUF_LIMIT:
        got, remedy = "a file over 2 GB", "save it with external data (onnx.save with save_as_external_data=True)"
    elif data[:1] == b"\x08":
        got = f"a file that ends or breaks after {len(data)} bytes"
        remedy = "the download or copy is incomplete; fetch the file again"
    else:
        got, remedy = "bytes that are no protobuf message", NOT_ONNX
    return ModelError(str(path), expected="an ONNX model", got=got, remedy=remedy)


def _refuse_empty(path: Path, model: onnx.ModelProto) -> None:
    if not model.graph.node and not model.graph.output:
        raise ModelError(
            str(path), expected="an ONNX model with a network in it", got="a model without nodes", remedy=NOT_ONNX
        )
    if not model.graph.output:
        raise ModelError(
            str(path),
            expected="a network with an output",
            got="none",
            remedy="the file may be cut short; fetch it again",
        )


def _refuse_newer(path: Path, model: onnx.ModelProto) -> None:
    newest = onnx.defs.onnx_opset_version()
    version = max((entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=1)
    if version > newest or model.ir_version > onnx.IR_VERSION:
        raise ModelError(
            str(path),
            expected=f"opset up to {newest} and IR version up to {onnx.IR_VERSION}",
            got=f"opset {version}, IR version {model.ir_version}",
            remedy="update the onnx package (pip install -U onnx), or export with an older opset",
        )


def _refuse_odd_names(path: Path, model: onnx.ModelProto) -> None:
    odd = unreadable_name(model)
    if odd is not None:
        raise ModelError(
            str(path),
            expected="names in UTF-8",
            got=odd,
            remedy="the file is damaged; fetch it again, or export it anew",
        )


def _refuse_damaged(path: Path, model: onnx.ModelProto) -> None:
    """Refuse tensors whose stored bytes do not make their shape; decoding them would fail later, without a name."""
    for tensor in all_tensors(model):
        expected, got = _stored_bytes(tensor)
        if expected != got:
            raise ModelError(
                f"{path}, tensor {tensor.name!r}",
                expected=f"{expected} bytes for shape {list(tensor.dims)}",
                got=str(got),
                remedy="the file is damaged, or was edited by hand; fetch it again, or export it anew",
            )


def _stored_bytes(tensor: onnx.TensorProto) -> tuple[int, int]:
    """Answer the bytes that a tensor's shape asks for, and those it stores; equal where they cannot be told."""
    kind = onnx.TensorProto
    elements = math.prod(tensor.dims)
    if tensor.data_location == kind.EXTERNAL or tensor.HasField("segment"):
        return 0, 0
    if tensor.HasField("raw_data") and tensor.data_type != kind.STRING:
        width = RAW_BYTES.get(tensor.data_type)
        return (0, 0) if width is None else (elements * width, len(tensor.raw_data))
    typed: Mapping[int, Sized] = {
        kind.FLOAT: tensor.float_data,
        kind.INT64: tensor.int64_data,
        kind.DOUBLE: tensor.double_data,
        kind.STRING: tensor.string_data,
    }
    stored = typed.get(tensor.data_type)
    width = RAW_BYTES.get(tensor.data_type, 1)
    return (0, 0) if stored is None else (elements * width, len(stored) * width)


def _load_external(path: Path, model: onnx.ModelProto) -> None:
    for name, location, end in _external_entries(model):
        _check_external(path, name, location, end)
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except (OSError, ValueError, onnx.checker.ValidationError) as error:
        raise ModelError(
            str(path),
            expected="readable external data",
            got=str(error).splitlines()[0],
            remedy="keep the data file beside the model, as the exporter wrote both",
        ) from error
    for tensor in all_tensors(model):  # the same network gives the same bytes, wherever its weights were
        tensor.ClearField("data_location")


def _external_entries(model: onnx.ModelProto) -> Iterator[tuple[str, str, int]]:
    """List (tensor, file, bytes needed in it) of all external data; length 0 is unknown, a negative one damage."""
    for tensor in all_tensors(model):
        if external_data_helper.uses_external_data(tensor):
            entry = {item.key: item.value for item in tensor.external_data}
            sizes = [entry.get(key) or "0" for key in ("offset", "length")]
            end = sum(map(int, sizes)) if all(size.isdecimal() and size.isascii() for size in sizes) else -1
            yield tensor.name, entry.get("location", ""), end


def _check_external(path: Path, tensor: str, location: str, end: int) -> None:
    folder = path.parent.resolve()
    inside = bool(location) and "\0" not in location
    target = (folder / location).resolve() if inside else folder
    if end < 0:
        got, remedy = f"offset or length of tensor {tensor!r} that are no numbers", "the file is damaged; copy it again"
    elif inside and (folder / location).is_symlink():
        got, remedy = f"external data at {location!r}, a link", "copy the data file itself into the model's folder"
    elif not inside or not target.is_relative_to(folder):
        got, remedy = f"external data at {location!r}", "keep the data file in the model's folder"
    elif not target.is_file():
        got, remedy = f"no file {location!r} beside the model", f"copy {location!r} into the model's folder too"
    elif target.stat().st_size < end:
        got = f"{target.stat().st_size} bytes in {location!r}, of {end} needed by tensor {tensor!r}"
        remedy = f"{location!r} is cut short or belongs to another model; copy it again"
    else:
        return
    raise ModelError(str(path), expected="the external data that the model refers to", got=got, remedy=remedy)


def save_model(model: onnx.ModelProto, path: Path) -> None:
    """Write a model atomically; above 2 GB the weights go to ``NAME.data`` beside it.

    The bytes depend on the model alone. The model itself is not changed.

    Raises:
        OutputError: the folder is read-only or the disk is full; older files are untouched.
    """
    if _size(model) < PROTOBUF_LIMIT:
        write_atomic(path, model.SerializeToString(deterministic=True))
        return
    data_path = path.with_name(f"{path.name}.data")
    with output_errors(path), temporary_sibling(data_path) as temporary:
        with temporary.open("wb") as stream:
            light = _externalised(model, stream, data_path.name)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(data_path)
    write_atomic(path, light.SerializeToString(deterministic=True))


def _size(model: onnx.ModelProto) -> int:
    try:
        return int(model.ByteSize())
    except Exception:  # noqa: BLE001  protobuf raises its own kinds beyond 2 GB
        return PROTOBUF_LIMIT


def _externalised(model: onnx.ModelProto, stream: IO[bytes], location: str) -> onnx.ModelProto:
    light = onnx.ModelProto()
    _copy_fields(model, light, {"graph"})
    _copy_fields(model.graph, light.graph, {"initializer"})
    for tensor in model.graph.initializer:
        target = light.graph.initializer.add()
        if len(tensor.raw_data) < EXTERNAL_MINIMUM:
            target.CopyFrom(tensor)
            continue
        _copy_fields(tensor, target, {"raw_data"})
        stream.write(b"\0" * (-stream.tell() % ALIGNMENT))
        offset = stream.tell()
        stream.write(tensor.raw_data)
        target.data_location = onnx.TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", len(tensor.raw_data))):
            target.external_data.add(key=key, value=str(value))
    return light


def _copy_fields(source: onnx.ModelProto, target: onnx.ModelProto, skip: set[str]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name in skip:
            continue
        field = getattr(target, descriptor.name)
        if hasattr(field, "extend"):
            field.extend(value)
        elif hasattr(field, "CopyFrom"):
            field.CopyFrom(value)
        else:
            setattr(target, descriptor.name, value)
