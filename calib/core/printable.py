"""Names and counts as messages show them: whatever bytes a file holds, a terminal gets only printable characters."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Escape bytes that are no UTF-8, lone surrogates and control characters, except those in ``keep``."""
    try:
        whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    except UnicodeEncodeError:  # a surrogate that stands for no byte
        whole = text.encode("utf-8", "backslashreplace").decode("utf-8")
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in whole
    )


def quoted(name: str) -> str:
    """Quote a name for a message; like ``repr``, but bytes that are no UTF-8 read as bytes."""
    return repr(name) if "'" in name or "\\" in name else f"'{printable(name)}'"


def excerpt(text: str) -> str:
    """Quote a text for a message, cut to 60 characters."""
    shown = text if len(text) <= 60 else text[:57] + "..."
    return quoted(shown) if shown else "nothing"


def counted(number: int, one: str, many: str = "") -> str:
    """Write a count with its noun: ``1 range``, ``2 ranges``; ``many`` where the plural is more than an s."""
    return f"{number} {one if number == 1 else many or one + 's'}"
