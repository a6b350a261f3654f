"""Recognise what a file of ranges is by its content alone, and name what is none."""

from __future__ import annotations

import re
from dataclasses import dataclass

HEAD = 65536
CALIBRATE = "pass a cache written by a TensorRT calibrator or by `calib build`"
CONVERT = "pass the TensorRT cache; this file holds ranges in another format"
UNPACK = "unpack it and pass the file inside"
RESAVE = "save it as plain UTF-8 without a byte order mark"


@dataclass(frozen=True)
class ForeignFormat:
    """What a file is, what to do instead, and its key among the formats of ranges where it is one."""

    what: str
    remedy: str
    key: str = ""


LEGACY_TORCH = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
"""How torch.save began before PyTorch 1.6: the pickled number 0x1950a86a20f9469cfc6c."""
MAGIC: tuple[tuple[int, bytes, ForeignFormat], ...] = (
    (0, LEGACY_TORCH, ForeignFormat("a PyTorch checkpoint of before version 1.6", CONVERT, "amax-torch")),
    *(
        (offset, magic, ForeignFormat(what, remedy))
        for offset, magic, what, remedy in (
            (0, b"ptrt", "a TensorRT engine", CALIBRATE),
            (0, b"ftrt", "a TensorRT engine", CALIBRATE),
            (0, b"\x93NUMPY", "a NumPy array", CALIBRATE),
            (0, b"\x89HDF", "an HDF5 file", CALIBRATE),
            (0, b"\x1f\x8b", "a gzip archive", UNPACK),
            (4, b"1AY&SY", "a bzip2 archive", UNPACK),
            (0, b"\xfd7zXZ\0", "an xz archive", UNPACK),
            (0, b"\x28\xb5\x2f\xfd", "a zstd archive", UNPACK),
            (0, b"7z\xbc\xaf\x27\x1c", "a 7z archive", UNPACK),
            (0, b"Rar!\x1a\x07", "a rar archive", UNPACK),
            (257, b"ustar", "a tar archive", UNPACK),
            (0, b"%PDF", "a PDF document", CALIBRATE),
            (0, b"\x80\x02", "a Python pickle", CALIBRATE),
            (0, b"\x80\x04", "a Python pickle", CALIBRATE),
            (4, b"ORTM", "an ONNX Runtime .ort model", CALIBRATE),
            (4, b"TFL3", "a TensorFlow Lite model", CALIBRATE),
            (0, b"version https://git-lfs", "a git-lfs pointer", "run `git lfs pull`, which fetches the file itself"),
            (0, b"\xff\xfe\0\0", "UTF-32 text", RESAVE),
            (0, b"\0\0\xfe\xff", "UTF-32 text", RESAVE),
            (0, b"\xff\xfe", "UTF-16 text", RESAVE),
            (0, b"\xfe\xff", "UTF-16 text", RESAVE),
            (0, b"\xef\xbb\xbf", "text with a byte order mark, whose header TensorRT does not recognise", RESAVE),
        )
    ),
)
"""What files start with: offset, bytes, and what they mean."""
WIDE = (("utf-16-le", "UTF-16 text"), ("utf-16-be", "UTF-16 text"), ("utf-32-le", "UTF-32 text"))
"""Encodings that editors and shells of Windows write without a mark."""
NUMBER = rb"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?inf|nan"
TABLE_LINE = re.compile(rb"(?:\S.*)?[^:\s] (?:" + NUMBER + rb")\s*\Z")
RANGE_LINE = re.compile(
    rb"\S.*:[ \t]*(?:[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+\.?[eE][-+][0-9]+|[-+]?inf|nan)\s*\Z"
)
DECIMAL_END = re.compile(rb".*[: ][-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?\s*\Z")
"""An entry of the text formats; no header and no first line of a JSON text ends so."""
HEADER_LINE = re.compile(rb"(?:TRT-.*|1|0 [0-9a-fA-F]+ [0-9a-fA-F]+)\s*\Z")
ONNX_FIELDS = frozenset(bytes([tag]) for tag in b"\x12\x1a\x22\x28\x32\x3a\x42\x72")
"""Tags that may follow the IR version at the start of an ONNX file."""
JSON_KEYS: tuple[tuple[tuple[bytes, ...], ForeignFormat], ...] = (
    ((b'"tensor_scales"',), ForeignFormat("dynamic-range JSON (TAO, key tensor_scales)", CONVERT, "tao-json")),
    ((b'"act_quant_info"',), ForeignFormat("dynamic-range JSON (PPQ, key act_quant_info)", CONVERT, "ppq-json")),
    (
        (b'"schema"', b'"calibrators"'),
        ForeignFormat(
            "the ranges.json of a build, which holds the ranges of every calibrator",
            "pass the build folder, or one of the .cache files beside it",
        ),
    ),
)
"""What a JSON text is, by keys that occur in it."""
ANY_JSON = ForeignFormat("a JSON text (a calibration.json of ONNX Runtime?)", CONVERT, "ort-json")
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
    return ForeignFormat("a zip archive", UNPACK)


def _by_magic(head: bytes) -> ForeignFormat | None:
    return next((found for at, magic, found in MAGIC if head[at : at + len(magic)] == magic), None)


def _by_markup(head: bytes) -> ForeignFormat | None:
    start = head.lstrip()[:200].lower()
    if start.startswith((b"<!doctype", b"<html", b"<head")):
        return ForeignFormat("an HTML page", "the download saved a web page; fetch the raw file")
    if start.startswith(b"<?xml"):
        return ForeignFormat("an XML file", CALIBRATE)
    if not start.startswith((b"{", b"[")) or DECIMAL_END.match(_first_line(head)):  # a tensor may be called so
        return None
    return next((found for keys, found in JSON_KEYS if all(key in head for key in keys)), ANY_JSON)


def _first_line(head: bytes) -> bytes:
    return re.split(rb"[\r\n]", head.lstrip(), maxsplit=1)[0]


def _binary(data: bytes, head: bytes) -> ForeignFormat | None:
    if b"\0" not in head:
        return None
    wide = next((what for encoding, what in WIDE if head.startswith("TRT-".encode(encoding))), "")
    if wide:
        return ForeignFormat(wide, RESAVE)
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
    if HEADER_LINE.match(lines[0]) and not DECIMAL_END.match(lines[0]):
        return None
    if TABLE_LINE.match(lines[0]):
        return ForeignFormat("a calibration table of ONNX Runtime ('name value')", CONVERT, "ort-text")
    if b":" in lines[0] and any(RANGE_LINE.match(line) for line in lines):
        return ForeignFormat("a dynamic-range text ('tensor: amax', as sampleINT8API reads)", CONVERT, "range-text")
    return None
