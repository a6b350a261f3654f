"""Recognise what a file of ranges is by its content alone, and name what is none."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = 65536
CALIBRATE = "pass a cache written by a TensorRT calibrator or by `calib build`"
CONVERT = "pass the TensorRT cache; this file holds ranges in another format"


@dataclass(frozen=True)
class ForeignFormat:
    """What a file is, what to do instead, and its key among the formats of ranges where it is one."""

    what: str
    remedy: str
    key: str = ""


MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"ptrt", "a TensorRT engine"),
    (0, b"ftrt", "a TensorRT engine"),
    (0, b"\x93NUMPY", "a NumPy array"),
    (0, b"\x89HDF", "an HDF5 file"),
    (0, b"\x1f\x8b", "a gzip archive"),
    (0, b"%PDF", "a PDF document"),
    (0, b"\x80\x02", "a Python pickle"),
    (0, b"\x80\x04", "a Python pickle"),
    (4, b"ORTM", "an ONNX Runtime .ort model"),
    (4, b"TFL3", "a TensorFlow Lite model"),
    (0, b"version https://git-lfs", "a git-lfs pointer; run `git lfs pull`"),
)
LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How torch.save began before PyTorch 1.6: the pickled number 0x1950a86a20f9469cfc6c."""
BOMS: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe", "UTF-16 text"),
    (b"\xfe\xff", "UTF-16 text"),
    (b"\xef\xbb\xbf", "text with a byte order mark, whose header TensorRT does not recognise"),
)
NUMBER = rb"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf|nan"
TABLE_LINE = re.compile(rb"(?:\S.*)?[^:\s] (?:" + NUMBER + rb")\s*\Z")
RANGE_LINE = re.compile(
    rb"\S.*:[ \t]*(?:[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+\.?[eE][-+][0-9]+|[-+]?inf|nan)\s*\Z"
)
HEADER_LINE = re.compile(rb"(?:TRT-.*|1|0 [0-9a-fA-F]+ [0-9a-fA-F]+)\s*\Z")
ONNX_FIELDS = frozenset(bytes([tag]) for tag in b"\x12\x1a\x22\x28\x32\x3a\x42\x72")
"""Tags that may follow the IR version at the start of an ONNX file."""
MOST_LINES = 1000
"""Lines of a text that are looked at."""


def foreign_format(data: bytes) -> ForeignFormat | None:
    """Name the format of a file that cannot be a TensorRT cache; None when it may be one."""
    if not data.strip():
        return ForeignFormat("an empty file" if not data else "a file of blanks only", CALIBRATE)
    head = data[:HEAD]
    return _archive(data) or _by_magic(head) or _by_markup(head) or _binary(data, head) or _by_lines(head)


def _archive(data: bytes) -> ForeignFormat | None:
    """Tell a PyTorch checkpoint from an npz file by the names in the archive's directory, which stands at its end."""
    if not data.startswith(b"PK\x03\x04"):
        return None
    if b"data.pkl" in data[:HEAD] or b"data.pkl" in data[-HEAD:]:
        return ForeignFormat("a zip archive (a PyTorch checkpoint)", CONVERT, "amax-torch")
    if b".npy" in data[:HEAD]:
        return ForeignFormat("a zip archive (an npz file)", CONVERT, "amax-npz")
    return ForeignFormat("a zip archive (a PyTorch checkpoint or an npz file)", CALIBRATE)


def _by_magic(head: bytes) -> ForeignFormat | None:
    for mark, what in BOMS:
        if head.startswith(mark):
            return ForeignFormat(what, "save it as plain UTF-8 without a byte order mark")
    if head.startswith(LEGACY_TORCH):
        return ForeignFormat("a PyTorch checkpoint of before version 1.6", CONVERT, "amax-torch")
    for offset, magic, what in MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return ForeignFormat(what, CALIBRATE)
    return None


def _by_markup(head: bytes) -> ForeignFormat | None:
    start = head.lstrip()[:200].lower()
    if start.startswith((b"<!doctype", b"<html", b"<head")):
        return ForeignFormat("an HTML page", "the download saved a web page; fetch the raw file")
    if start.startswith(b"<?xml"):
        return ForeignFormat("an XML file", CALIBRATE)
    if not start.startswith((b"{", b"[")):
        return None
    if b'"tensor_scales"' in head:
        return ForeignFormat("dynamic-range JSON (TAO, key tensor_scales)", CONVERT, "tao-json")
    if b'"act_quant_info"' in head:
        return ForeignFormat("dynamic-range JSON (PPQ, key act_quant_info)", CONVERT, "ppq-json")
    return ForeignFormat("a JSON text (a calibration.json of ONNX Runtime?)", CONVERT, "ort-json")


def _binary(data: bytes, head: bytes) -> ForeignFormat | None:
    if b"\0" not in head:
        return None
    if int.from_bytes(head[:8], "little") <= len(data) - 8 and head[8:9] == b"{":
        return ForeignFormat("a safetensors file", CONVERT, "amax-safetensors")
    if head[:1] == b"\x08" and head[2:3] in ONNX_FIELDS:
        return ForeignFormat("an ONNX model", CALIBRATE, "qdq-onnx")
    root = int.from_bytes(head[:4], "little")
    if 4 <= root < len(data) and root % 4 == 0:
        return ForeignFormat("a flatbuffer (a calibration.flatbuffers of ONNX Runtime?)", CONVERT, "ort-flatbuffers")
    return ForeignFormat("a binary file", CALIBRATE)


def _by_lines(head: bytes) -> ForeignFormat | None:
    """Recognise the headerless text formats by their first line, which is an entry already."""
    lines = [line for line in re.split(rb"[\r\n]+", head.lstrip()) if line.strip()][:MOST_LINES]
    if HEADER_LINE.match(lines[0]):
        return None
    if TABLE_LINE.match(lines[0]):
        return ForeignFormat("a calibration table of ONNX Runtime ('name value')", CONVERT, "ort-text")
    if b":" in lines[0] and any(RANGE_LINE.match(line) for line in lines):
        return ForeignFormat("a dynamic-range text ('tensor: amax', as sampleINT8API reads)", CONVERT, "range-text")
    return None
