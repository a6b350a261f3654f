"""A log of finished pieces of work, appended one by one, that survives the death of the process that writes it."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from calib.edges.files import output_errors, write_atomic

HEAD = struct.Struct("<II")
Facts = Mapping[str, Any]
"""What decides the records, as JSON values. Equal facts, equal records."""


class RecordLog:
    """A file of records, each with its length and checksum, behind a first one that holds the facts.

    Args:
        path: the file; one of other facts, or that is no log, is started over.
        facts: what the records are for.

    Attributes:
        found: whole records of earlier runs, up to the first that is cut short or damaged.

    Raises:
        OutputError: the file cannot be written.
    """

    def __init__(self, path: Path, facts: Facts) -> None:
        self._path = path
        self.found, good = _read(path, facts) if path.exists() else ([], 0)
        with output_errors(path):
            self._stream: BinaryIO = path.open("r+b" if good else "wb")
            self._stream.truncate(good)
            self._stream.seek(good)
        if not good:
            self.append(_facts_record(facts))

    def append(self, payload: bytes) -> None:
        """Keep a record; it survives the death of this process.

        Raises:
            OutputError: it cannot be written.
        """
        with output_errors(self._path):
            self._stream.write(_framed(payload))
            self._stream.flush()

    def __enter__(self) -> RecordLog:
        """Begin; the file is open already."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close the file."""
        self._stream.close()


def write_log(path: Path, facts: Facts, records: Iterable[bytes]) -> None:
    """Write a whole log at once, atomically.

    Raises:
        OutputError: it cannot be written.
    """
    write_atomic(path, b"".join(map(_framed, [_facts_record(facts), *records])))


def read_log(path: Path, facts: Facts) -> list[bytes]:
    """Read the whole records of a log; none where it is missing or of other facts."""
    return _read(path, facts)[0] if path.is_file() else []


def _facts_record(facts: Facts) -> bytes:
    return json.dumps(facts, sort_keys=True).encode()


def _framed(payload: bytes) -> bytes:
    return HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def _read(path: Path, facts: Facts) -> tuple[list[bytes], int]:
    """Whole records, and the length of the file up to their end; 0 where the facts differ."""
    records = _records(path.read_bytes())
    first = next(records, None)
    if first is None or first[0] != _facts_record(facts):
        return [], 0
    found, end = [], first[1]
    for payload, stop in records:
        found.append(payload)
        end = stop
    return found, end


def _records(data: bytes) -> Iterator[tuple[bytes, int]]:
    at = 0
    while at + HEAD.size <= len(data):
        length, check = HEAD.unpack_from(data, at)
        payload = data[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        if len(payload) != length or zlib.crc32(payload) != check:
            return
        yield payload, at
