"""Patterns from the command line, or from a file of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from calib.edges.files import read_bytes
from calib.errors import FormatError, UsageError
from calib.stages.floatlayers import FLAG

FILE = "@"
COMMENT, BLANKS = "#", " \t"
_LINE_END = re.compile(r"\r\n|\r|\n")


def read_patterns(given: Sequence[str]) -> tuple[str, ...]:
    """Put the patterns of files named ``@FILE`` in the place of their names, each pattern once.

    A file has one pattern a line; empty lines, what begins with ``#`` and blanks around a pattern do not count.
    :func:`file_pattern` writes names that have these.

    Raises:
        ImageError: a file cannot be read.
        FormatError: a file is not text.
        UsageError: a pattern or a file's name is empty.
    """
    empty = next((item for item in given if item in {"", FILE}), None)
    if empty is not None:
        raise UsageError(
            f"{FLAG} {empty!r}", expected="a pattern of layers' names, or @FILE of them", got="none",
            remedy="name a layer, or leave the option out",
        )  # fmt: skip
    return tuple(dict.fromkeys(pattern for item in given for pattern in _expand(item)))


def _expand(item: str) -> Iterator[str]:
    if not item.startswith(FILE):
        yield item
        return
    place = item.removeprefix(FILE)
    try:
        lines = _LINE_END.split(read_bytes(place).decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise FormatError(
            place, expected="patterns, one a line, in UTF-8", got="bytes that are not", remedy="save the file as UTF-8"
        ) from error
    patterns = (line.strip(BLANKS) for line in lines)
    yield from (pattern for pattern in patterns if pattern and not pattern.startswith(COMMENT))


def file_pattern(name: str) -> str:
    """A line that :func:`read_patterns` reads as a pattern of this name: the name itself wherever that is read so.

    Where it is not, its ``#``, blanks, ``*``, ``?`` and ``[`` stand in brackets, where they are taken as they are;
    ``?`` stands for a line's end within a name.
    """
    if name == name.strip(BLANKS) and not name.startswith(COMMENT) and not _LINE_END.search(name):
        return name
    return re.sub(r"[\r\n]", "?", re.sub(r"[*?\[# \t]", r"[\g<0>]", name))
