"""Image patterns and label templates.

A pattern is a glob (``*``, ``?``, ``[…]``, ``**``) in which ``{field}`` matches like ``*`` and remembers what it
matched. A template fills fields in: those remembered, and ``{stem}``, ``{name}``, ``{suffix}``, ``{parent}``,
``{folder}``, ``{path}`` of the image.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from calib.errors import ManifestError

FIELD = re.compile(r"\{(\w+)\}")
TOKEN = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]]+\]|\{\w+\}|[^*?\[{]+|[\[{]")
PICTURES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".tif", ".tiff", ".gif", ".ppm", ".pgm"})
PATH_FIELDS = ("stem", "name", "suffix", "parent", "folder", "path")


def find_images(place: str, root: str, pattern: str) -> dict[str, dict[str, str]]:
    """List the files below ``root`` that match, hidden ones left out.

    Args:
        place: names the pattern in errors.
        root: folder the pattern is relative to.
        pattern: see the module; a folder stands for all pictures below it.

    Returns:
        path as the pattern spells it (relative to ``root`` unless absolute) -> remembered fields, by ascending path.
    """
    if _is_folder(root, pattern):
        pattern = pattern.rstrip("/") + "/**/*"
        found = [path for path in _glob(root, pattern) if PurePosixPath(path).suffix.lower() in PICTURES]
    else:
        found = _glob(root, FIELD.sub("*", pattern))
    shape = compile_pattern(place, pattern)
    matches = ((path, shape.fullmatch(path)) for path in found)
    return {path: match.groupdict() for path, match in matches if match}


def compile_pattern(place: str, pattern: str) -> re.Pattern[str]:
    """Translate a pattern to a regular expression over whole paths.

    Raises:
        ManifestError: a field name that the path gives already, or braces that are no field.
    """
    parts: list[str] = []
    seen: set[str] = set()
    for token in TOKEN.findall(pattern):
        if FIELD.fullmatch(token):
            parts.append(_field_expression(place, pattern, token[1:-1], seen))
        elif token == "{":
            raise ManifestError(
                place,
                expected="{field} with letters, digits and underscores",
                got=repr(pattern),
                remedy="name the field; for alternatives give images: a list of patterns",
            )
        else:
            parts.append(_glob_expression(token))
    return re.compile("".join(parts), re.DOTALL)


def path_fields(key: str) -> dict[str, str]:
    """Fields of an image's path: ``a/b/c.d.png`` has stem ``c.d``, folder ``b``, parent ``a/b``, path ``a/b/c.d``."""
    path = PurePosixPath(key)
    parent = "" if str(path.parent) == "." else path.parent.as_posix()
    return {
        "stem": path.stem,
        "name": path.name,
        "suffix": path.suffix,
        "parent": parent,
        "folder": path.parent.name,
        "path": path.with_suffix("").as_posix(),
    }


def fill(place: str, template: str, fields: Mapping[str, str]) -> str:
    """Fill a template's fields in.

    Raises:
        ManifestError: a field that is not known; the message lists those that are.
    """
    unknown = next((name for name in FIELD.findall(template) if name not in fields), None)
    if unknown is not None:
        raise ManifestError(
            place,
            expected="one of the fields " + ", ".join("{" + name + "}" for name in sorted(fields)),
            got="{" + unknown + "}",
            remedy=f"write {{{unknown}}} into the images pattern to remember what it matches there",
        )
    return FIELD.sub(lambda match: fields[match[1]], template)


def _glob(root: str, pattern: str) -> list[str]:
    paths = glob.glob(pattern, root_dir=root, recursive=True)  # noqa: PTH207 - root_dir, no Path objects
    return sorted(path.replace("\\", "/") for path in paths if not Path(root, path).is_dir())


def _is_folder(root: str, pattern: str) -> bool:
    return not FIELD.search(pattern) and not glob.has_magic(pattern) and Path(root, pattern).is_dir()


def _field_expression(place: str, pattern: str, name: str, seen: set[str]) -> str:
    if name in PATH_FIELDS or name[0].isdigit():
        raise ManifestError(
            place,
            expected="field names other than " + ", ".join(PATH_FIELDS),
            got=f"{{{name}}} in {pattern!r}",
            remedy="rename the field in images: and labels:",
        )
    if name in seen:
        return f"(?P={name})"
    seen.add(name)
    return f"(?P<{name}>[^/]*)"


def _glob_expression(token: str) -> str:
    special = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in special:
        return special[token]
    if token.startswith("[") and len(token) > 2:
        inner = token[1:-1].replace("\\", "\\\\")
        return f"[^{inner[1:]}]" if inner.startswith("!") else f"[{inner}]"
    return re.escape(token)
