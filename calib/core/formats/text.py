"""What the text formats share: lines with their numbers, decimal numbers, names that can stand there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from calib.core.printable import excerpt, quoted
from calib.errors import FormatError
from calib.types.rangetable import RangeTable, Remark, TensorRange

ENCODING = ("utf-8", "surrogateescape")
DAMAGED = "the file is damaged or of another kind; restore it, or write it again"
NUMBER = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:inf|infinity|nan)", re.IGNORECASE)
_LINE_END = re.compile(r"\r\n|\n|\r")


def malformed(place: str, expected: str, got: str, remedy: str = DAMAGED) -> FormatError:
    """Make the error of a file that is not what it should be."""
    return FormatError(place, expected=expected, got=got, remedy=remedy)


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """List the lines that are not blank with their numbers, blanks at their ends removed; any line end serves."""
    for number, line in enumerate(_LINE_END.split(text), 1):
        if line.strip(" \t"):
            yield number, line.rstrip(" \t")


def to_number(text: str, place: str) -> float:
    """Read a decimal number; ``inf`` and ``nan`` are numbers, for faulty files hold them.

    Raises:
        FormatError: it is none.
    """
    if not NUMBER.fullmatch(text):
        raise malformed(place, "a decimal number", excerpt(text))
    return float(text)


def read_lines(
    data: bytes, place: str, split: Callable[[str, str], tuple[str, str, int]]
) -> tuple[dict[str, TensorRange], tuple[Remark, ...]]:
    """Read a text of one tensor a line.

    Args:
        data: the file's bytes.
        place: the file.
        split: from a line and its place to name, number as text and the number's column.

    Returns:
        The ranges (of a name that occurs twice, the last), and remarks.

    Raises:
        FormatError: with line and column.
    """
    found: list[TensorRange] = []
    for number, line in lines_of(data.decode(*ENCODING)):
        name, value, column = split(line, f"{place}:{number}")
        found.append(TensorRange(name, to_number(value, f"{place}:{number}:{column}")))
    if not found:
        raise malformed(f"{place}:1:1", "a tensor and its range", "an empty file")
    return {item.name: item for item in found}, repeated(found)


def repeated(ranges: Iterable[TensorRange]) -> tuple[Remark, ...]:
    """Remark on names that occur more than once, apart by whether their ranges agree."""
    first: dict[str, TensorRange] = {}
    again: dict[bool, dict[str, None]] = {True: {}, False: {}}
    for item in ranges:
        known = first.setdefault(item.name, item)
        if known is not item:
            again[known.amax == item.amax][item.name] = None
    same = tuple(name for name in again[True] if name not in again[False])
    texts = {
        "duplicates": (same, "occur more than once, with one range", False),
        "conflicts": (tuple(again[False]), "occur more than once, with different ranges; readers take either", True),
    }
    return tuple(Remark(code, names, text, blocks) for code, (names, text, blocks) in texts.items() if names)


def amax_text(item: TensorRange) -> str:
    """Write amax with as many digits as bring the very same number back."""
    return repr(item.amax)


def require_line_names(table: RangeTable, what: str) -> None:
    """Check that every name can stand in a line of text.

    Raises:
        FormatError: an empty name, a line break in it, or a blank at its end.
    """
    for item in table:
        if not item.name.strip() or re.search(r"[\r\n]", item.name) or item.name != item.name.strip(" \t"):
            raise malformed(
                f"tensor {quoted(item.name)}",
                f"a name that can stand in a line of {what}",
                "an empty name, a line break, or a blank at its ends",
                "rename it with `calib cache rename`, or choose another format",
            )


def require_unicode_names(table: RangeTable, what: str) -> None:
    """Check that every name is valid Unicode.

    Raises:
        FormatError: a name holds bytes that are no UTF-8.
    """
    for item in table:
        try:
            item.name.encode("utf-8")
        except UnicodeEncodeError as error:
            raise malformed(
                f"tensor {quoted(item.name)}",
                f"a name in UTF-8, as {what} needs it",
                "other bytes",
                "rename it with `calib cache rename`, or choose another format",
            ) from error
