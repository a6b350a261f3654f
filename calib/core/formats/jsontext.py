"""JSON objects with errors that name line and column, also of a value deep inside."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from calib.core.formats.text import malformed
from calib.core.printable import excerpt
from calib.errors import FormatError

_BLANK = re.compile(r"[ \t\r\n]*")
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")


class JsonText:
    """A JSON object and the text it was read from.

    Args:
        data: the file's bytes, UTF-8.
        place: the file.

    Raises:
        FormatError: no JSON object; with line and column.
    """

    def __init__(self, data: bytes, place: str) -> None:
        self.place = place
        self.repeated: list[str] = []
        try:
            self.text = data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise malformed(_at(place, data[: error.start].decode("utf-8")), "UTF-8 text", "other bytes") from error
        self.content = self._parsed()

    def _parsed(self) -> dict[str, Any]:
        try:
            content = json.loads(self.text, object_pairs_hook=self._unique, parse_int=float)
        except json.JSONDecodeError as error:
            place = f"{self.place}:{error.lineno}:{error.colno}"
            raise malformed(place, "JSON", f"{error.msg[:1].lower()}{error.msg[1:]}") from error
        except RecursionError as error:
            raise malformed(f"{self.place}:1:1", "a JSON object of ranges", "endless nesting") from error
        if not isinstance(content, dict):
            raise malformed(f"{self.place}:1:1", "a JSON object", _kind(content))
        self._refuse_half_characters(content)
        return content

    def _refuse_half_characters(self, content: dict[str, Any]) -> None:
        """Refuse escapes that are one half of a character: no file but another JSON could hold such a name."""
        escape = _SURROGATE.search(self.text)
        if escape is None:
            return
        try:
            json.dumps(content, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError as error:
            place = _at(self.place, self.text[: escape.start()])
            raise malformed(place, "whole characters", f"half of one, {error.object[error.start]!r}") from error

    def _unique(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            names = [name for name, _ in pairs]
            self.repeated.extend(sorted({name for name in names if names.count(name) > 1}))
        return made

    def error(self, path: Sequence[str], expected: str, got: Any) -> FormatError:
        """Make the error of the value at a path of keys; its place holds line and column."""
        return malformed(_at(self.place, self.text[: self._find(path)]), expected, _kind(got))

    def number(self, path: Sequence[str], value: Any) -> float:
        """Check that the value at a path is a number.

        Raises:
            FormatError: it is not.
        """
        if isinstance(value, float):
            return value
        raise self.error(path, "a number", value)

    def mapping(self, path: Sequence[str], value: Any) -> dict[str, Any]:
        """Check that the value at a path is an object.

        Raises:
            FormatError: it is not.
        """
        if isinstance(value, dict):
            return value
        raise self.error(path, "an object of tensor names and numbers", value)

    def _find(self, path: Sequence[str]) -> int:
        """Find where the value at a path starts; the text is known to be valid."""
        position = self._skip(0)
        for key in path:
            position = self._value_of(key, position)
        return position

    def _value_of(self, key: str, position: int) -> int:
        """Find the last value of a key in the object that starts at ``position``."""
        decoder, found = json.JSONDecoder(), position
        at = self._skip(position + 1)
        while self.text[at] == '"':
            name, at = decoder.raw_decode(self.text, at)
            start = self._skip(self._skip(at) + 1)
            found = start if name == key else found
            _, at = decoder.raw_decode(self.text, start)
            at = self._skip(at)
            at = self._skip(at + 1) if self.text[at] == "," else at
        return found

    def _skip(self, position: int) -> int:
        found = _BLANK.match(self.text, position)
        return found.end() if found else position


def _at(place: str, before: str) -> str:
    lines = before.split("\n")
    return f"{place}:{len(lines)}:{len(lines[-1]) + 1}"


def _kind(value: Any) -> str:
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return "null" if value is None else excerpt(str(value))


def dump(content: Any) -> bytes:
    """Write JSON that any reader takes: ASCII, indented, one final newline."""
    return (json.dumps(content, indent=1) + "\n").encode()
