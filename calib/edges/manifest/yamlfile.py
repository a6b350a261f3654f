"""YAML with line numbers: every key knows where it stands, and a key given twice is an error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from calib.errors import ManifestError

Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Location = tuple[str | int, ...]


@dataclass(frozen=True)
class YamlFile:
    """A parsed YAML mapping.

    Attributes:
        path: the file, for errors.
        content: its values.
        lines: line number (from 1) of each key and list item, by location.
    """

    path: str
    content: dict[str, Any]
    lines: dict[Location, int]

    def place(self, location: Sequence[str | int]) -> str:
        """Name a location for an error: file, line, dotted key; the nearest line known."""
        known = next((self.lines[key] for key in _shrinking(tuple(location)) if key in self.lines), None)
        dotted = ".".join(str(part) for part in location)
        return ", ".join([self.path, *([f"line {known}"] if known else []), *([dotted] if dotted else [])])


def parse_yaml(path: str, data: bytes) -> YamlFile:
    """Parse a YAML file whose top level is a mapping.

    Raises:
        ManifestError: a syntax error, with line and column, a key given twice, or no mapping.
    """
    try:
        text = data.decode("utf-8-sig")
        node = yaml.compose(text, Loader=Loader)
        lines: dict[Location, int] = {}
        _collect_lines(path, node, (), lines)
        content = yaml.load(text, Loader=Loader)  # a safe loader
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = getattr(error, "problem", None) or str(error)
        raise ManifestError(
            path + where,
            expected="YAML",
            got=problem,
            remedy="correct this line; text with ': ', '{', '*' or '#' needs quotes",
        ) from error
    if not isinstance(content, dict):
        raise ManifestError(
            path,
            expected="a YAML mapping with name, root, splits, …",
            got="an empty file" if content is None else f"a {type(content).__name__}",
            remedy="see docs/manifests.md for a complete example",
        )
    return YamlFile(path, content, lines)


def _collect_lines(path: str, node: Any, at: Location, lines: dict[Location, int]) -> None:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*at, str(key.value))
            if place in lines and key.value != "<<":
                raise ManifestError(
                    f"{path}, line {key.start_mark.line + 1}",
                    expected="each key once",
                    got=f"{key.value!r} again (first on line {lines[place]})",
                    remedy="merge the two entries",
                )
            lines[place] = key.start_mark.line + 1
            _collect_lines(path, value, place, lines)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[(*at, index)] = item.start_mark.line + 1
            _collect_lines(path, item, (*at, index), lines)


def _shrinking(location: Location) -> list[Location]:
    return [location[:length] for length in range(len(location), 0, -1)]
