"""TensorRT calibration caches: text to values and back, byte for byte.

A cache is a header line, then one ``name: hex`` a line. ``hex`` is the bit pattern of the float32 scale, written
without leading zeros (so zero is ``0``); ``scale = amax / 127`` (TensorRT 8.4 samples/sampleINT8/README). Names may
hold colons: the last one separates. Header forms: ``TRT-<number>-<algorithm>``, the older ``1``, and
``0 <hex double> <hex double>`` of the legacy calibrator. Other lines that start with ``TRT-`` are read as headers too,
so that a damaged one can be replaced; no TensorRT reads such a file.
"""

from __future__ import annotations

import re
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from calib.core.fileformats import foreign_format
from calib.core.printable import excerpt, quoted
from calib.errors import FormatError, UsageError

LEVELS = 127
ENCODING = ("utf-8", "surrogateescape")
ALGORITHMS = ("EntropyCalibration2", "EntropyCalibration", "MinMaxCalibration", "LegacyCalibration")
DAMAGED = "the file is damaged or no calibration cache; calibrate again or restore it"
UNNAMED = re.compile(r"\(Unnamed (?:Layer|ITensor)\s*\*\s*\d+\)")

_LINE = re.compile(r"([^\r\n]*)(\r\n|\n|\r|\Z)")
_TRT_HEADER = re.compile(r"TRT-([1-9][0-9]{0,8})-([A-Za-z0-9_]+)\Z")
_ODD_HEADER = re.compile(r"\s*TRT-", re.IGNORECASE)
_LEGACY_HEADER = re.compile(r"0 ([0-9a-fA-F]{1,16}) ([0-9a-fA-F]{1,16})\Z")
_VALUE = re.compile(r"[0-9a-fA-F]{1,8}\Z")
_VERSION = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})\.([0-9]{1,2})(?:\.[0-9]{1,6})?\Z")


@dataclass(frozen=True)
class CacheHeader:
    """The first line, as written, and the line end that follows it."""

    text: str
    ending: str = "\n"

    @property
    def number(self) -> int | None:
        """``NV_TENSORRT_VERSION`` of the writer; None in the older forms."""
        found = _TRT_HEADER.match(self.text)
        return int(found[1]) if found else None

    @property
    def malformed(self) -> bool:
        """Whether it is none of the forms that TensorRT writes."""
        return self.number is None and self.text != "1" and self.legacy is None

    @property
    def version(self) -> str | None:
        """TensorRT version of the writer, ``8.6.1``; None when the header does not tell."""
        return None if self.number is None else header_version(self.number)

    @property
    def algorithm(self) -> str | None:
        """Name of the calibrator class without its ``I`` and ``Int8``: ``EntropyCalibration2``."""
        found = _TRT_HEADER.match(self.text)
        if found:
            return found[2]
        return "LegacyCalibration" if self.legacy else None

    @property
    def legacy(self) -> tuple[float, float] | None:
        """Quantile and regression cutoff of the legacy calibrator's header."""
        found = _LEGACY_HEADER.match(self.text)
        if not found:
            return None
        low, high = (struct.unpack(">d", bytes.fromhex(text.rjust(16, "0")))[0] for text in found.groups())
        return float(low), float(high)


@dataclass(frozen=True)
class CacheEntry:
    """One tensor's scale.

    Attributes:
        name: tensor name.
        bits: bit pattern of the float32 scale.
        spelling: the text between the name and the line end, colon included; ``: 3c010a14``.
        ending: line end, with any blank lines that follow; empty at the end of a file without final newline.
    """

    name: str
    bits: int
    spelling: str
    ending: str = "\n"

    @classmethod
    def of(cls, name: str, scale: float, ending: str = "\n") -> CacheEntry:
        """Make the entry that TensorRT itself would write for a scale, rounded to float32."""
        bits = int(np.float32(scale).view(np.uint32))
        return cls(name, bits, f": {bits:x}", ending)

    @property
    def scale(self) -> float:
        """The scale, exactly; may be zero, negative or non-finite in a faulty cache."""
        return float(np.uint32(self.bits).view(np.float32))

    @property
    def amax(self) -> float:
        """Half-width of the dynamic range: ``scale * 127``, in float64."""
        return self.scale * LEVELS

    @property
    def unnamed(self) -> bool:
        """Whether the key is one that the parser made up; it holds for one parser version and graph only."""
        return UNNAMED.search(self.name) is not None


@dataclass(frozen=True)
class CalibrationCache:
    """A whole cache; :meth:`render` gives back the bytes it was parsed from."""

    header: CacheHeader
    entries: tuple[CacheEntry, ...]

    @property
    def newline(self) -> str:
        """Line end of the header: ``\\r\\n``, ``\\n``, the old Macintosh's ``\\r``; ``\\n`` where the file has none."""
        return next((end for end in ("\r\n", "\r") if end in self.header.ending), "\n")

    @property
    def final_newline(self) -> bool:
        """Whether the file ends in a line end."""
        return bool((self.entries[-1] if self.entries else self.header).ending)

    @property
    def scales(self) -> dict[str, float]:
        """Scale by tensor name; of a name that occurs twice, the last."""
        return {entry.name: entry.scale for entry in self.entries}

    @property
    def duplicates(self) -> tuple[str, ...]:
        """Names that occur more than once, in order."""
        counts = Counter(entry.name for entry in self.entries)
        return tuple(name for name, count in counts.items() if count > 1)

    def render(self) -> bytes:
        """Write the cache as bytes."""
        lines = [self.header.text + self.header.ending]
        lines.extend(entry.name + entry.spelling + entry.ending for entry in self.entries)
        return "".join(lines).encode(*ENCODING)


def parse(data: bytes, place: str = "cache") -> CalibrationCache:
    """Read a cache.

    Args:
        data: the file's bytes.
        place: name of the file, for errors.

    Raises:
        FormatError: with ``place:line:column``; a file of another known kind is named for what it is.
    """
    _refuse_foreign(data, place)
    text = data.decode(*ENCODING)
    lines = _lines(text)
    _, first, ending = next(lines)
    _check_header(first, place)
    entries = tuple(_parse_entry(content, end, f"{place}:{number}") for number, content, end in lines)
    return CalibrationCache(CacheHeader(first, ending), entries)


def _refuse_foreign(data: bytes, place: str) -> None:
    found = foreign_format(data)
    if found is not None:
        raise FormatError(f"{place}:1:1", expected="a TensorRT calibration cache", got=found.what, remedy=found.remedy)


def _lines(text: str) -> Iterator[tuple[int, str, str]]:
    """Split into (line number, text, ending); blanks at a line's end and blank lines belong to the ending."""
    held: tuple[int, str, str] | None = None
    for number, found in enumerate(_LINE.finditer(text), 1):
        content = found[1].rstrip(" \t")
        ending = found[1][len(content) :] + found[2]
        if content or held is None:
            if held is not None:
                yield held
            held = (number, content, ending)
        else:
            held = (held[0], held[1], held[2] + ending)
    if held is not None:
        yield held


def _check_header(text: str, place: str) -> None:
    entry = _is_entry(text)
    if not CacheHeader(text).malformed or (_ODD_HEADER.match(text) and not entry):
        return
    if not text:
        got, remedy = "a blank line", "delete the blank lines at the top: readers take the first line for the header"
    elif entry:
        got = "an entry: the header line is missing"
        remedy = "add the header of the TensorRT version that wrote the cache, or calibrate again"
    else:
        got, remedy = excerpt(text), "pass a calibration cache, or ranges in a format that `calib cache convert` reads"
    raise FormatError(f"{place}:1:1", expected="a header such as TRT-8601-EntropyCalibration2", got=got, remedy=remedy)


def _is_entry(text: str) -> bool:
    return ":" in text and _VALUE.match(text.rpartition(":")[2].strip()) is not None


def _parse_entry(text: str, ending: str, place: str) -> CacheEntry:
    name, colon, rest = text.rpartition(":")
    if not colon:
        raise _entry_error(place, 1, "a line 'name: hex'", excerpt(text), _remedy_of(text))
    if not name:
        raise _entry_error(place, 1, "a tensor name before the colon", excerpt(text))
    value = rest.strip(" \t")
    if not _VALUE.match(value):
        column = len(text) - len(rest.lstrip(" \t")) + 1
        raise _entry_error(place, column, "one to eight hexadecimal digits", excerpt(value), _value_remedy(value))
    return CacheEntry(name, int(value, 16), colon + rest, ending)


def _entry_error(place: str, column: int, expected: str, got: str, remedy: str = "") -> FormatError:
    return FormatError(f"{place}:{column}", expected=expected, got=got, remedy=remedy or DAMAGED)


def _remedy_of(text: str) -> str:
    """What to do about a line without colon; empty where nothing special is known."""
    if not CacheHeader(text).malformed and text != "1":
        return "this is the header of a second cache: cut the file in two and join them with `calib cache merge`"
    if text.startswith(("<<<<<<<", "=======", ">>>>>>>")):
        return "version control left a merge conflict here: choose one side, or calibrate again"
    return "a cache has no comments: delete the line" if text.startswith(("#", "//")) else ""


def _value_remedy(value: str) -> str:
    if re.match(r"0[xX][0-9a-fA-F]{1,8}\Z", value):
        return "write the digits without 0x"
    decimal = re.fullmatch(r"[-+]?[0-9]*\.[0-9]+(?:[eE][-+]?[0-9]+)?", value)
    return "without the header line the file is a dynamic-range text, whose numbers are amax" if decimal else ""


def render(
    entries: Iterable[tuple[str, float]], version: str, algorithm: str = "EntropyCalibration2"
) -> CalibrationCache:
    """Make the cache of a TensorRT version.

    ``EntropyCalibration2`` is right whatever chose the ranges: trtexec, Polygraphy and DLA read caches with that
    class and silently recalibrate on any other header.

    Args:
        entries: tensor name and scale (``amax / 127``), in network order.
        version: ``8.6.1``, ``10.14.1``.
        algorithm: class of the calibrator that will read the file.

    Raises:
        UsageError: the version is malformed or reads no cache, or the algorithm is none of TensorRT's.
        FormatError: a scale is not finite and positive as float32, or a name cannot stand in a line.
    """
    if algorithm not in ALGORITHMS:
        raise UsageError(
            f"cache algorithm {algorithm!r}",
            expected=f"one of {', '.join(ALGORITHMS)}",
            got=repr(algorithm),
            remedy="leave it out, unless the reader is a calibrator of another class",
        )
    header = CacheHeader(f"TRT-{header_number(version)}-{algorithm}")
    return CalibrationCache(header, tuple(_checked(name, scale) for name, scale in entries))


def _checked(name: str, scale: float) -> CacheEntry:
    if not name or "\n" in name or "\r" in name or name != name.rstrip(" \t"):
        raise FormatError(
            f"tensor {quoted(name)}",
            expected="a name that can stand in a line of a cache",
            got="an empty name, a line break or a space at its end",
            remedy="give it another with `calib cache rename`, or choose another format",
        )
    entry = CacheEntry.of(name, scale)
    if not (np.isfinite(entry.scale) and entry.scale > 0):
        raise FormatError(
            f"tensor {quoted(name)}",
            expected="a finite scale > 0 in float32",
            got=f"{scale!r}",
            remedy="give dead tensors a floor before writing",
        )
    return entry


def header_number(version: str) -> int:
    """Compute ``NV_TENSORRT_VERSION``: ``M*1000+m*100+p`` up to 9.x, ``M*10000+m*100+p`` from 10.0.

    Raises:
        UsageError: not ``major.minor.patch``, out of the formula's range, or a version without caches (11 and up).
    """
    found = _VERSION.match(version.strip())
    major, minor, patch = (int(part) for part in found.groups()) if found else (0, 0, 0)
    if not major or (major < 10 and minor > 9):
        raise UsageError(
            f"TensorRT version {version!r}",
            expected="major.minor.patch, such as 8.6.1 or 10.14.1",
            got=repr(version),
            remedy="`dpkg -l | grep nvinfer` or `pip show tensorrt` tells the installed one",
        )
    if major > 10:
        raise UsageError(
            f"TensorRT version {version!r}",
            expected="a version that reads calibration caches, up to 10.x",
            got=f"TensorRT {major}, which removed them",
            remedy="use the Q/DQ ONNX for this version",
        )
    return major * (10000 if major >= 10 else 1000) + minor * 100 + patch


def reads_caches(version: str) -> bool:
    """Whether there is such a version of TensorRT, and it has calibration caches."""
    try:
        header_number(version)
    except UsageError:
        return False
    return True


def header_version(number: int) -> str | None:
    """Read a header number back: 8601 is ``8.6.1``, 101401 is ``10.14.1``; None where neither formula gives it."""
    if 1000 <= number < 10000:
        return f"{number // 1000}.{number // 100 % 10}.{number % 100}"
    if 100000 <= number < 1000000:
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"
    return None
