"""Patterns from the command line, or from a file of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from calib.edges.files import read_bytes
from calib.errors import FormatError

FILE = "@"


def read_patterns(given: Sequence[str]) -> tuple[str, ...]:
    """Put the patterns of files named ``@FILE`` in the place of their names, each pattern once.

    A file has one pattern a line; empty lines and what begins with ``#`` do not count.

    Raises:
        ImageError: a file cannot be read.
        FormatError: a file is not text.
    """
    return tuple(dict.fromkeys(pattern for item in given for pattern in _expand(item)))


def _expand(item: str) -> Iterator[str]:
    if not item.startswith(FILE):
        yield item
        return
    place = item.removeprefix(FILE)
    try:
        lines = read_bytes(place).decode("utf-8-sig").splitlines()
    except UnicodeDecodeError as error:
        raise FormatError(
            place, expected="patterns, one a line, in UTF-8", got="bytes that are not", remedy="save the file as UTF-8"
        ) from error
    yield from (line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#"))
