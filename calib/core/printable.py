"""Names as they can be shown: whatever bytes a file holds, a terminal gets only printable characters."""

from __future__ import annotations


def printable(text: str, keep: str = "") -> str:
    """Escape bytes that are no UTF-8 and control characters, except those in ``keep``."""
    whole = text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return "".join(
        char if char.isprintable() or char in keep else char.encode("unicode_escape").decode() for char in whole
    )
